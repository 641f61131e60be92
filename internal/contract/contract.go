// Package contract reads the file that describes the payload of a kind of event, and finds the changes
// between two such files that break a reader. It serves contracts, dashboard and cmd/outbox, and
// imports the standard library alone.
package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The keywords of a file that are not JSON Schema.
const (
	KeyAggregateType = "x-aggregate-type"
	KeyEventType     = "x-event-type"
	KeyContentType   = "x-content-type"
	KeyVersion       = "x-version"
	KeyReads         = "x-reads-versions"
)

// Contract is the content of a file.
type Contract struct {
	AggregateType, EventType, ContentType string
	Version                               int
	Reads                                 []int // the versions that listeners read
	Schema                                map[string]any
}

// Kind names the contract for people.
func (c *Contract) Kind() string { return c.AggregateType + "/" + c.EventType }

// Parse reads a file. A JSON Schema without the keywords of a contract is a contract of version 1.
func Parse(data []byte) (*Contract, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	c := &Contract{}
	if err := decoder.Decode(&c.Schema); err != nil {
		return nil, fmt.Errorf("no JSON object (%d bytes): %w", len(data), err)
	}
	if c.Schema == nil {
		return nil, fmt.Errorf("no JSON object (%d bytes)", len(data))
	}
	var keys struct {
		AggregateType string `json:"x-aggregate-type"`
		EventType     string `json:"x-event-type"`
		ContentType   string `json:"x-content-type"`
		Version       int    `json:"x-version"`
		Reads         []int  `json:"x-reads-versions"`
	}
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, fmt.Errorf("no contract (%d bytes): %w", len(data), err)
	}
	c.AggregateType, c.EventType, c.Version, c.Reads = keys.AggregateType, keys.EventType, max(keys.Version, 1), keys.Reads
	if c.ContentType = keys.ContentType; c.ContentType == "" {
		c.ContentType = "application/json"
	}
	if len(c.Reads) == 0 {
		c.Reads = []int{c.Version}
	}
	return c, nil
}

// AsyncAPIFile is the name of the file that lists the contracts of a folder.
const AsyncAPIFile = "asyncapi.json"

// FileName is the name of the file of a kind. Bytes that some file systems refuse are percent-encoded.
func FileName(aggregateType, eventType string) string {
	return Name(aggregateType, eventType) + ".json"
}

// Name is the file's name without the ending.
func Name(aggregateType, eventType string) string {
	if aggregateType == "" || aggregateType == "__GLOBAL__" {
		return fileSafe(eventType)
	}
	return fileSafe(aggregateType) + "." + fileSafe(eventType)
}

func fileSafe(text string) string {
	const safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	var b strings.Builder
	for _, c := range []byte(text) {
		if strings.IndexByte(safe, c) < 0 {
			fmt.Fprintf(&b, "%%%02X", c)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// Side is who breaks by a change.
type Side int

// The sides.
const (
	// Consumers read events of the new build and were made for the old contract.
	Consumers Side = 1 << iota
	// Waiting events, and dead letters, were written by an old build, and listeners of the new build
	// read them.
	Waiting
)

// String names the sides.
func (s Side) String() string {
	switch s {
	case Consumers:
		return "consumers"
	case Waiting:
		return "waiting events"
	case Consumers | Waiting:
		return "consumers and waiting events"
	default:
		return "nobody"
	}
}

// Change is a change that breaks a side.
type Change struct {
	Kind    string
	Path    string // such as "lines[].price"; empty: the whole payload
	Problem string
	Breaks  Side
}

// String is the change in a line.
func (c Change) String() string {
	at := c.Kind
	if c.Path != "" {
		at += " " + c.Path
	}
	return fmt.Sprintf("%s: %s (breaks %s)", at, c.Problem, c.Breaks)
}

// Diff returns the breaking changes from old to new.
//
// A higher version says that listeners turn old payloads into new ones. Then only consumers break by
// the schema.
func Diff(old, new *Contract) []Change { //nolint:revive // new is the word
	var changes []Change
	add := func(breaks Side, format string, args ...any) {
		changes = append(changes, Change{Problem: fmt.Sprintf(format, args...), Breaks: breaks})
	}
	if new.Version < old.Version {
		add(Consumers|Waiting, "the version went back from %d to %d", old.Version, new.Version)
	}
	if missing := slices.DeleteFunc(slices.Clone(old.Reads), func(v int) bool { return slices.Contains(new.Reads, v) }); len(missing) > 0 {
		add(Waiting, "listeners no longer read version %d; add outbox.From(%d, …) to the topic, or accept the change when no row has the version", missing[0], missing[0])
	}
	if new.ContentType != old.ContentType {
		add(Consumers|Waiting, "the content type was %s and is %s", old.ContentType, new.ContentType)
	}
	steps := maxSteps
	c := &comparer{old: old.Schema, new: new.Schema, seen: map[[2]uintptr]bool{}, trials: map[[2]uintptr]Side{}, steps: &steps}
	c.compare("", old.Schema, new.Schema)
	for _, change := range c.changes {
		if new.Version > old.Version {
			change.Breaks &^= Waiting
		}
		if change.Breaks != 0 {
			changes = append(changes, change)
		}
	}
	for i := range changes {
		changes[i].Kind = new.Kind()
	}
	return changes
}

// DiffAll is Diff of two folders: contracts by the names of their files.
func DiffAll(old, new map[string]*Contract) []Change { //nolint:revive // new is the word
	var changes []Change
	names := make([]string, 0, len(old))
	for name := range old {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if now, is := new[name]; is {
			changes = append(changes, Diff(old[name], now)...)
			continue
		}
		changes = append(changes, Change{Kind: old[name].Kind(), Problem: "the kind is gone", Breaks: Consumers | Waiting})
	}
	return changes
}
