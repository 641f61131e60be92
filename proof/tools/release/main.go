// Release prepares, checks and tags the modules of this repository:
//
//	go run -C proof ./tools/release try           # use each module from its zip alone
//	go run -C proof ./tools/release tag           # commit and tag the version of versions.yaml
//	go run -C proof ./tools/release check v0.1.0  # check the tags of a version
//	go run -C proof ./tools/release proxy dir     # write a module proxy to a folder
//
// Tag publishes nothing: it prints the command that does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/outboxkit/outbox-go/proof/release"
)

func main() {
	dir := flag.String("dir", "..", "the root of the repository")
	online := flag.Bool("online", false, "try: download modules of others that the module cache lacks")
	flag.Parse()
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	if err := run(ctx, *dir, *online, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, online bool, command, argument string) error {
	switch command {
	case "proxy":
		return proxy(ctx, dir, argument)
	case "try":
		return try(ctx, dir, online)
	case "tag":
		tagged, err := release.Tag(ctx, dir)
		if err != nil {
			return err
		}
		fmt.Printf("release: commit %s has the tags of %s; publish them with:\n%s\n", tagged.Commit, tagged.Version, tagged.Push())
		return nil
	case "check":
		return release.CheckTags(ctx, dir, argument)
	}
	return fmt.Errorf("release: there is no command %q; there are try, tag, check and proxy", command)
}

func proxy(ctx context.Context, dir, into string) error {
	if into == "" {
		return errors.New("release: proxy takes the folder to write to")
	}
	into, err := filepath.Abs(into)
	if err != nil {
		return err
	}
	repository, err := release.Load(ctx, dir)
	if err != nil {
		return err
	}
	built, err := release.Build(repository, into)
	if err != nil {
		return err
	}
	fmt.Printf("release: GOPROXY=file://%s has %s of %d modules\n", filepath.ToSlash(into), built.Version, len(built.Modules))
	return nil
}

func try(ctx context.Context, dir string, online bool) (err error) {
	temporary, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	repository, err := release.Load(ctx, dir)
	if err != nil {
		return err
	}
	built, err := release.Build(repository, filepath.Join(temporary, "proxy"))
	if err != nil {
		return err
	}
	checker, err := release.NewChecker(ctx, built, temporary, online)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, checker.Close()) }()
	for _, m := range built.Modules {
		for _, step := range []func(context.Context, *release.BuiltModule) error{checker.Tidy, checker.Packages, checker.Programs} {
			if err := step(ctx, m); err != nil {
				return err
			}
		}
		fmt.Printf("release: %s@%s: its go.mod is tidy; %d packages build alone; %d programs install\n", m.Path, built.Version, len(m.Packages), len(m.Programs))
	}
	return nil
}
