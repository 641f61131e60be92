// Guest adds each public package of the released modules, alone, to two modules: one that has
// popular libraries at versions of a year ago, and one that has nothing. Guest prints the consequences:
//
//	go run -C proof ./tools/guest -run 'adapters/|ginmw'
//
// Guest exits with 1 if a package raises a version of a module of which it imports nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/outboxkit/outbox-go/proof/guest"
	"github.com/outboxkit/outbox-go/proof/release"
)

func main() {
	dir := flag.String("dir", "..", "the root of the repository")
	pattern := flag.String("run", "", "only the packages that this regular expression matches")
	size := flag.Bool("size", false, "build the programs, and print how much larger they get")
	parallel := flag.Int("parallel", 2, "how many packages at a time")
	flag.Parse()
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer end()
	if err := run(ctx, *dir, *pattern, *size, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// row has the consequences of a package for both guests.
type row struct {
	imported  string
	full, own *guest.Result
	err       error
}

func run(ctx context.Context, dir, pattern string, size bool, parallel int) (err error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return fmt.Errorf("guest: -run: %w", err)
	}
	libraries, err := guest.Libraries()
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "guest-")
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
	folder := func(name string) (made string) {
		made = filepath.Join(temporary, name)
		err = errors.Join(err, os.MkdirAll(made, 0o755))
		return made
	}
	fullDir, emptyDir := folder("full"), folder("empty")
	if err != nil {
		return err
	}
	// Into the user's module cache, before the one of the checker has links to it.
	full, err := guest.New(ctx, plain, fullDir, repository.GoVersion(), libraries)
	if err != nil {
		return err
	}
	empty, err := guest.New(ctx, plain, emptyDir, repository.GoVersion(), nil)
	if err != nil {
		return err
	}
	checker, err := release.NewChecker(ctx, built, temporary, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, checker.Close()) }()

	var rows []*row
	for _, m := range built.Modules {
		for _, imported := range m.Packages {
			if wanted.MatchString(imported) {
				rows = append(rows, &row{imported: imported})
			}
		}
	}
	root := repository.Versions.Modules[0]
	next := make(chan *row)
	var lanes sync.WaitGroup
	for range parallel {
		lanes.Go(func() {
			for r := range next {
				name := strings.ReplaceAll(r.imported, "/", "_")
				if r.full, r.err = full.Add(ctx, checker.Go, filepath.Join(temporary, "full-"+name), root, r.imported, built.Version, false); r.err == nil {
					r.own, r.err = empty.Add(ctx, checker.Go, filepath.Join(temporary, "empty-"+name), root, r.imported, built.Version, size)
				}
			}
		})
	}
	for _, r := range rows {
		next <- r
	}
	close(next)
	lanes.Wait()
	fmt.Printf(`Beside %d libraries, whose build list has %d modules: how many versions are raised, how many of them are
of the libraries, and of how many the package imports nothing. In a module that has nothing else: the lines
of go.sum, the modules, and the size of the program.

`, len(libraries), full.Modules())
	return table(rows, libraries, root, size)
}

// plain runs a go command in the user's environment.
func plain(ctx context.Context, dir string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(arguments, " "), err, exit.Stderr)
	}
	return string(out), err
}

// table prints a row for each package, and who raises which version.
func table(rows []*row, libraries []guest.Library, root string, size bool) error {
	direct := map[string]bool{}
	for _, l := range libraries {
		direct[l.Module] = true
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(out, "| package\t| raised\t| libraries\t| not imported\t| go.sum\t| modules\t| size\t|")
	fmt.Fprintln(out, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	var errs []error
	changes := map[string]*change{}
	for _, r := range rows {
		if r.err != nil {
			errs = append(errs, r.err)
			continue
		}
		name := strings.TrimPrefix(r.imported, root+"/")
		libraries := 0
		for _, raised := range r.full.Raised {
			if direct[raised.Module] {
				libraries++
			}
			what := fmt.Sprintf("%s %s to %s", raised.Module, raised.From, raised.To)
			if len(raised.RequiredBy) > 0 {
				what += ", not imported"
			}
			if changes[what] == nil {
				changes[what] = &change{requiredBy: map[string]bool{}}
			}
			changes[what].packages = append(changes[what].packages, name)
			for _, by := range raised.RequiredBy {
				changes[what].requiredBy[by] = true
			}
		}
		grown := "-"
		if size {
			grown = fmt.Sprintf("%.1f MB", float64(r.own.Size)/1e6)
		}
		fmt.Fprintf(out, "| %s\t| %d\t| %d\t| %d\t| %d\t| %d\t| %s\t|\n",
			name, len(r.full.Raised), libraries, len(r.full.Unneeded()), r.own.Sums, r.own.Modules, grown)
	}
	errs = append(errs, out.Flush())
	fmt.Println()
	unneeded := 0
	for _, what := range slices.Sorted(maps.Keys(changes)) {
		c := changes[what]
		line := what + ", by " + some(c.packages)
		if len(c.requiredBy) > 0 {
			unneeded++
			line += "; required by " + some(oursFirst(slices.Sorted(maps.Keys(c.requiredBy)), root))
		}
		fmt.Println(line)
	}
	if unneeded > 0 {
		errs = append(errs, fmt.Errorf("guest: %d versions are raised by packages that import nothing of them; lower the require line, or move the package to a module of its own", unneeded))
	}
	return errors.Join(errs...)
}

// change is a version that packages raise. The modules in requiredBy require it though the
// packages import nothing of it.
type change struct {
	packages   []string
	requiredBy map[string]bool
}

// oursFirst puts the modules of this repository, which can change, before the modules of others.
func oursFirst(names []string, root string) []string {
	isOurs := func(name string) bool { return strings.HasPrefix(name, root) }
	others := slices.DeleteFunc(slices.Clone(names), isOurs)
	return append(slices.DeleteFunc(names, func(name string) bool { return !isOurs(name) }), others...)
}

// some are the first of many names.
func some(names []string) string {
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + fmt.Sprintf(" and %d more", len(names)-3)
	}
	return strings.Join(names, ", ")
}
