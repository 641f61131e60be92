// Withdb finds or starts the databases that the tests use and runs a command with
// their addresses in the environment:
//
//	go run ./internal/tools/withdb -- go test ./...
//
// Withdb takes each database from the first of: the variables OUTBOX_TEST_POSTGRES and
// OUTBOX_TEST_MYSQL; a server on the default local port; a private server from installed binaries,
// in .db/; a private server after installing the system's packages, as root on Debian or Ubuntu;
// docker compose. Withdb prints where each database is, or why it is missing, which fails with
// CI=true. With -postgres or -mysql and a folder of extracted packages, as fetch.sh of ../debian
// makes it, that database is a private server of these programs, whatever else there is. Concurrent
// runs share the private servers, and the last run stops them; -keep leaves them running, -down
// stops them and deletes their files. The exit status is the command's, or 128 and the signal's
// number.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	keep := flag.Bool("keep", false, "leave private servers running")
	down := flag.Bool("down", false, "stop private servers and delete their files")
	postgres := flag.String("postgres", "", "the `folder` with the programs of PostgreSQL")
	mysql := flag.String("mysql", "", "the `folder` with the programs of MySQL or MariaDB")
	flag.Parse()
	// Resolve the folder's real name: it identifies the servers' processes.
	here, err := os.Getwd()
	if err == nil {
		here, err = filepath.EvalSymlinks(here)
	}
	root := filepath.Join(here, ".db")
	if err == nil && *down {
		err = stopAll(root)
	}
	if err != nil {
		say("%v", err)
		os.Exit(1)
	}
	if !*down {
		os.Exit(run(servers(root, absolute(here, *postgres), absolute(here, *mysql)), *keep, flag.Args()))
	}
}

func absolute(here, folder string) string {
	if folder == "" || filepath.IsAbs(folder) {
		return folder
	}
	return filepath.Join(here, folder)
}

// run returns the exit status.
func run(servers []*server, keep bool, command []string) int {
	// A signal ends the command, and then the servers started for it.
	ctx, release := untilSignal(context.Background())
	defer release()
	missing := false
	for _, s := range servers {
		where, err := s.ensure(ctx)
		defer func() {
			if err := s.leave(keep); err != nil {
				say("stopping %s: %v", s.name, err)
			}
		}()
		switch {
		case ctx.Err() != nil:
			say("%v", context.Cause(ctx))
			return signalOf(ctx).status()
		case err != nil:
			missing = true
			say("%s: NOT tested: %s", s.name, strings.Join(strings.Fields(err.Error()), " "))
		default:
			say("%s: tested, %s", s.name, where)
		}
	}
	say("SQLite: tested, files of the tests' own")
	if missing && os.Getenv("CI") == "true" {
		say("CI=true: a missing database is a failure")
		return 1
	}
	if len(command) == 0 {
		return 0
	}
	return runCommand(ctx, command)
}

func stopAll(root string) error {
	var errs []error
	if _, err := os.Stat(root); err != nil {
		return nil // there are no files
	}
	ctx, release := untilSignal(context.Background())
	defer release()
	turns, _ := filepath.Glob(filepath.Join(root, "*.turn"))
	for _, turn := range turns {
		s := serverAt(strings.TrimSuffix(turn, ".turn"), "")
		errs = append(errs, s.remove(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(root)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "databases: "+format+"\n", args...) }
