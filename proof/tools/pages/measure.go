package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// measure asks for each page, and prints a table.
func measure(ctx context.Context, o options, db *sql.DB, store *sqlstore.Store) error {
	if err := prepare(ctx, db, store); err != nil {
		return err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = ob.Close(ctx) }()
	s, err := newSite(ob, o.readers)
	if err != nil {
		return err
	}
	defer s.page.EndStreams()
	list, err := s.requests(ctx, db, ob)
	if err != nil {
		return err
	}
	fmt.Println("| page | status | median | p95 | max | first | bytes | allocated |\n|---|---|---|---|---|---|---|---|")
	for _, r := range list {
		if strings.Contains(r.name, o.only) {
			if err := o.measure(ctx, s, r); err != nil {
				return err
			}
		}
	}
	if o.cli == "" {
		return nil
	}
	for _, command := range []string{"stats", "nodes", "events list", "events list --status DEAD", "events list --event-type nothing", "dead list", "dead groups", "audit", "doctor"} {
		var took []time.Duration
		for range 5 {
			args := append(strings.Fields(command), "--dsn", cliDSN(o))
			began := time.Now()
			out, err := exec.CommandContext(ctx, o.cli, args...).CombinedOutput() //nolint:gosec // the program of the flag
			took = append(took, time.Since(began))
			if err != nil && !strings.Contains(err.Error(), "exit status 4") && !strings.Contains(err.Error(), "exit status 5") {
				fmt.Fprintf(os.Stderr, "outbox %s: %v: %s\n", command, err, out)
			}
		}
		slices.Sort(took)
		fmt.Printf("| outbox %s | | %s | | %s | | | |\n", command, ms(took[2]), ms(took[4]))
	}
	return nil
}

// cliDSN is the address of the table for the command line.
func cliDSN(o options) string {
	if o.db == "mysql" {
		config, err := mysql.ParseDSN(o.dsn)
		if err != nil {
			return o.dsn
		}
		config.DBName = schema
		return config.FormatDSN()
	}
	u, err := url.Parse(o.dsn)
	if err != nil {
		return o.dsn
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

func (o options) measure(ctx context.Context, s *site, r request) error {
	var took []time.Duration
	var first time.Duration
	var got *answer
	var before, after runtime.MemStats
	for i := range o.tries + 1 {
		if i == 1 {
			runtime.ReadMemStats(&before)
		}
		began := time.Now()
		var err error
		if got, err = s.ask(ctx, r); err != nil {
			return err
		}
		if i == 0 {
			first = time.Since(began)
			continue
		}
		took = append(took, time.Since(began))
	}
	runtime.ReadMemStats(&after)
	slices.Sort(took)
	flag := ""
	if took[len(took)/2] > 100*time.Millisecond {
		flag = " !"
	}
	_, err := fmt.Fprintf(os.Stdout, "| %s%s | %d | %s | %s | %s | %s | %d | %d KiB |\n", r.name, flag, got.status, ms(took[len(took)/2]), ms(took[len(took)*95/100]),
		ms(took[len(took)-1]), ms(first), got.body.Len(), (after.TotalAlloc-before.TotalAlloc)/uint64(o.tries)>>10)
	return err
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }
