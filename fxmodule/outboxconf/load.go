// Package outboxconf reads an [outboxfx.Config] from a YAML file and environment
// variables.
//
//	fx.Decorate(func() (outboxfx.Config, error) { return outboxconf.Load("outbox.yaml") })
//
// The file has the keys of the configuration, such as dispatcher.worker-count, and
// [Section] takes them from below another key. A variable such as
// OUTBOX_DISPATCHER_WORKER_COUNT takes precedence. Only an app that imports this package
// links a YAML decoder.
//
// The package does not use koanf, which drops the line of a key: of the 38 wrong files in
// the tests koanf names a line for 5 and accepts 8, such as worker-count: 1.5 as 1.
package outboxconf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

// Limits of a file, which bound the time that parsing takes.
const (
	maxSize = 1 << 20 // bytes
	maxKeys = 1000    // in the section that is read
)

// Option is an option of [Load].
type Option func(*loading)

type loading struct {
	name    string
	section string
	environ []string
}

// Named reads the variables of a named outbox. The variables of "orders" begin with
// OUTBOX_ORDERS_.
func Named(name string) Option { return func(l *loading) { l.name = name } }

// Section takes the settings from below a key of the file, such as "outbox" or
// "outboxes.orders", and ignores the rest of the file.
func Section(path string) Option { return func(l *loading) { l.section = path } }

// Environ reads the variables from a list of KEY=value instead of the process's
// environment.
func Environ(list []string) Option { return func(l *loading) { l.environ = list } }

// Load reads a YAML file, and environment variables, which take precedence:
// OUTBOX_DISPATCHER_WORKER_COUNT is dispatcher.worker-count. An empty variable
// counts as not set. With an empty path Load reads only the variables. It refuses a
// file larger than 1 MiB, and a section with more than 1,000 keys. The error has
// an [outboxfx.KeyError] for each problem, with the file's line or the variable. Load first
// reports all unknown keys and malformed values. Without such problems it reports all problems that
// [outboxfx.Config.Validate] finds, such as settings that the mode does not have.
func Load(path string, opts ...Option) (outboxfx.Config, error) {
	l := loading{environ: os.Environ()}
	for _, opt := range opts {
		opt(&l)
	}
	var entries []entry
	if path != "" {
		text, err := os.ReadFile(path)
		if err == nil {
			entries, err = readYAML(path, text, l.section)
		}
		if err != nil {
			return outboxfx.Config{}, fmt.Errorf("outboxconf: the configuration %s: %w", path, err)
		}
	} else if l.section != "" {
		return outboxfx.Config{}, fmt.Errorf("outboxconf: Section(%q) needs a file, but the path is empty", l.section)
	}
	c, err := configOf(append(entries, l.readVariables()...))
	if err != nil {
		return outboxfx.Config{}, fmt.Errorf("outboxconf: the configuration is wrong:\n%w", err)
	}
	return c, nil
}

// entry is a key and its text as a file or a variable has them.
type entry struct {
	key, text, place string
	problem          string // found while reading it
}

// configOf makes a Config of entries, of which later ones take precedence.
func configOf(entries []entry) (outboxfx.Config, error) {
	var (
		c      outboxfx.Config
		errs   []error
		places = map[string]string{} // of the keys that were set
		above  = map[string]bool{}   // sections that settings are below
	)
	fields := maps.Collect(c.Settings())
	for _, e := range entries {
		field, known := fields[e.key]
		switch section := sectionAbove(e.key); {
		case e.problem != "":
		case known:
			places[e.key] = e.place
			e.problem = set(e.key, field, e.text)
		case section == "":
			e.problem = unknownKey(e.key, nearest(e.key))
		case !above[section]:
			above[section] = true
			e.key, e.problem = section, fmt.Sprintf("is not a setting, but has settings below it; outboxconf.Section(%q) reads them", section)
		}
		if e.problem != "" {
			errs = append(errs, &outboxfx.KeyError{Key: e.key, Place: e.place, Problem: e.problem})
		}
	}
	if len(errs) == 0 { // else the mode may be wrong, and settings would seem not to fit the mode
		return c, located(c.Validate(), places)
	}
	return c, errors.Join(errs...)
}

// located adds the places of the keys to the problems that Validate reports.
func located(err error, places map[string]string) error {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		for _, err := range joined.Unwrap() {
			if key := (*outboxfx.KeyError)(nil); errors.As(err, &key) {
				setting, _, _ := strings.Cut(key.Key, "[") // of kinds[0].rate
				key.Place = places[setting]
			}
		}
	}
	return err
}
