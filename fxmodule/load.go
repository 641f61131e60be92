package outboxfx

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
)

// VariablePrefix is what the names of the variables begin with.
const VariablePrefix = "OUTBOX_"

// LoadOption changes where a configuration is read from.
type LoadOption func(*loading)

type loading struct {
	section string
	environ func() []string
	ignored []string
}

// Section takes the settings from below a key of the file, such as "outbox" or
// "outboxes.orders", and leaves the rest of the file to others.
func Section(path string) LoadOption { return func(l *loading) { l.section = path } }

// Environ reads the variables from a list of KEY=value instead of the process's
// environment.
func Environ(list []string) LoadOption {
	return func(l *loading) { l.environ = func() []string { return list } }
}

// IgnoreVariables names variables that begin with OUTBOX_ and are none of the
// outbox's settings; a trailing * stands for anything.
func IgnoreVariables(names ...string) LoadOption {
	return func(l *loading) { l.ignored = append(l.ignored, names...) }
}

// LoadConfig reads the configuration of the unnamed outbox from a YAML file and
// lays the variables OUTBOX_… over it, such as OUTBOX_DISPATCHER_WORKER_COUNT
// for dispatcher.worker-count; an empty variable counts as not set. An empty
// path reads the variables alone. The error is about everything that is wrong: a
// [KeyError] for each unknown key, bad value, and setting that the mode does not
// have, with the file's line or the variable.
func LoadConfig(path string, opts ...LoadOption) (Config, error) {
	return load(path, VariablePrefix, opts)
}

// LoadNamedConfig is [LoadConfig] for a named outbox: the variables of one named
// "orders" begin with OUTBOX_ORDERS_.
func LoadNamedConfig(name, path string, opts ...LoadOption) (Config, error) {
	if name == "" {
		return Config{}, errors.New("outboxfx: LoadNamedConfig is given no name; LoadConfig is for the unnamed outbox")
	}
	if err := checkName(name); err != nil {
		return Config{}, err
	}
	return load(path, VariablePrefix+variableName(name)+"_", opts)
}

func load(path, prefix string, opts []LoadOption) (Config, error) {
	l := loading{environ: os.Environ}
	for _, opt := range opts {
		if opt != nil {
			opt(&l)
		}
	}
	var text []byte
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return Config{}, fmt.Errorf("outboxfx: reading the configuration: %w", err)
		}
	} else if l.section != "" {
		return Config{}, fmt.Errorf("outboxfx: Section(%q) is of no file: the path is empty", l.section)
	}
	return l.parse(path, text, prefix)
}

// parse makes a Config of a file's text and the variables with the prefix.
func (l loading) parse(path string, text []byte, prefix string) (Config, error) {
	entries, err := readYAML(path, text, l.section)
	if err != nil {
		return Config{}, fmt.Errorf("outboxfx: the configuration %s: %w", path, err)
	}
	variables, err := l.readVariables(prefix)
	if err != nil {
		return Config{}, err
	}
	var (
		c      Config
		errs   []error
		places = map[string]string{} // by key, of what was understood
	)
	for _, e := range append(entries, variables...) {
		problem := e.problem
		if problem == "" {
			problem = e.set(&c)
		}
		if problem != "" {
			errs = append(errs, &KeyError{Key: e.key, Place: e.place, Problem: problem})
			continue
		}
		if _, known := settingAt(e.key); known {
			places[e.key] = e.place
		}
	}
	errs = append(errs, c.problems(func(s setting) (string, bool) {
		place, set := places[s.path]
		return place, set
	})...)
	if err := errors.Join(errs...); err != nil {
		return Config{}, fmt.Errorf("outboxfx: the configuration is wrong:\n%w", err)
	}
	return c, nil
}

// entry is a key and its value as a file or a variable has them.
type entry struct {
	key     string
	value   any
	place   string
	line    int
	problem string // that was found in reading it
}

func inLines(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.key, b.key))
	})
}
