package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

const (
	beginMark = "<!-- Written by make bench. Do not edit. -->"
	endMark   = "<!-- The end of what make bench writes. -->"
)

// Servers with tables beside the servers of the same kind: MariaDB, which is of the kind [testdb.MySQL], and
// PostgreSQL 18.
const (
	mariaDB    testdb.Kind = "mariadb"
	postgres18 testdb.Kind = "postgres18"
)

// serverOf is the name in the results of a server that describes itself so.
func serverOf(kind testdb.Kind, description string) testdb.Kind {
	switch {
	case kind == testdb.MySQL && strings.Contains(description, "MariaDB"):
		return mariaDB
	case kind == testdb.Postgres && strings.HasPrefix(description, "version 18"):
		return postgres18
	default:
		return kind
	}
}

// documented are the databases that have tables, in their order.
var documented = []testdb.Kind{testdb.Postgres, postgres18, mariaDB, testdb.MySQL, testdb.SQLite}

var databaseNames = map[testdb.Kind]string{
	testdb.Postgres: "PostgreSQL", postgres18: "PostgreSQL 18", mariaDB: "MariaDB", testdb.MySQL: "MySQL", testdb.SQLite: "SQLite",
}

// writeTo writes bench/results.json and the tables of BENCHMARKS.md in the folder. The existing
// results of works that were not run now are kept. Plots would repeat the tables, and any plotting
// program reads the JSON.
func (r results) writeTo(docs string) error {
	folder := filepath.Join(docs, "bench")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	file := filepath.Join(folder, "results.json")
	if err := r.keep(file); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return r.replaceTables(filepath.Join(docs, "BENCHMARKS.md"))
}

// keep adds the works of the file that were not run now, and orders all.
func (r *results) keep(file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var before results
	if err = firstError(err, json.Unmarshal(text, &before)); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	for _, old := range before.Works {
		if !slices.ContainsFunc(r.Works, func(w workResult) bool { return w.Database == old.Database && w.Work == old.Work }) {
			r.Works = append(r.Works, old)
		}
	}
	order := works()
	place := func(w workResult) int {
		return slices.Index(documented, w.Database)*len(order) + slices.IndexFunc(order, func(o work) bool { return o.name == w.Work })
	}
	slices.SortStableFunc(r.Works, func(a, b workResult) int { return place(a) - place(b) })
	return nil
}

// replaceTables replaces the text between the marks.
func (r results) replaceTables(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(text), beginMark)
	_, after, ok2 := strings.Cut(rest, endMark)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no %q and %q around its tables", file, beginMark, endMark)
	}
	return os.WriteFile(file, []byte(before+beginMark+"\n\n"+r.markdown()+"\n"+endMark+after), 0o644)
}

// markdown is all tables: a section for each work, a table for each database.
func (r results) markdown() string {
	var b strings.Builder
	b.WriteString("Measured with:\n\n" + r.machines())
	for _, w := range works() {
		heading := false
		for i := range r.Works {
			result := &r.Works[i]
			if result.Work != w.name {
				continue
			}
			if !heading {
				fmt.Fprintf(&b, "\n## %s\n\n%s\n", w.title, w.note)
				heading = true
			}
			fmt.Fprintf(&b, "\n### %s: %s\n\n%s", databaseNames[result.Database], w.name, result.markdown())
		}
	}
	return b.String()
}

// machines are the lines about the machine and the databases, each with the tables that were
// measured there.
func (r results) machines() string {
	type key struct {
		kind    testdb.Kind
		machine string
	}
	var order []key
	names := map[key][]string{}
	for _, w := range r.Works {
		k := key{w.Database, w.Machine}
		if names[k] == nil {
			order = append(order, k)
		}
		names[k] = append(names[k], w.Work)
	}
	var b strings.Builder
	for _, k := range order {
		fmt.Fprintf(&b, "- %s (%s): %s\n", databaseNames[k.kind], strings.Join(names[k], ", "), k.machine)
	}
	return b.String()
}
