package contracts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/internal/contract"
	"github.com/outboxkit/outbox-go/outbox"
)

// Topic is an [outbox.Topic] of any payload.
type Topic interface {
	Kind() outbox.EventKind
	PayloadType() reflect.Type
	ContentType() string
	Version() int
	Versions() []int
}

// Set is the events that a program writes, and how they are published. Topics is required.
type Set struct {
	// Title names the program in the AsyncAPI document. Defaults to "Events".
	Title string
	// Version is the version of the AsyncAPI document. Defaults to "1.0.0".
	Version string
	// Topics are the topics, each of its own kind.
	Topics []Topic
	// Address returns the address of a kind in the AsyncAPI document, such as the topic of a Kafka relay.
	// Defaults to the aggregate type and the event type, with a dot between.
	Address func(kind outbox.EventKind) string
}

// T is the part of [testing.T] that Check needs.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// Variable is the environment variable that lets [Check] write the files.
const Variable = "OUTBOX_CONTRACTS"

// Values of [Variable].
const (
	// Update writes the files, unless a change breaks a reader.
	Update = "update"
	// Accept writes the files, also if a change breaks a reader.
	Accept = "accept"
)

// Check compares the topics with the files of a folder, and fails the test if a file differs. The test
// says which changes break consumers or waiting events. The environment variable [Variable] lets Check
// write the files:
//
//	OUTBOX_CONTRACTS=update go test -run Contracts ./...   # refuses changes that break a reader
//	OUTBOX_CONTRACTS=accept go test -run Contracts ./...   # writes them, too
//
// The folder is for the topics of a single Check, because a file without a topic counts as a kind that
// is gone.
func Check(t T, folder string, topics ...Topic) {
	t.Helper()
	Set{Topics: topics}.Check(t, folder)
}

// Check is [Check] with the options of the set.
func (s Set) Check(t T, folder string) {
	t.Helper()
	mode := os.Getenv(Variable)
	if mode != "" && mode != Update && mode != Accept {
		t.Errorf("contracts: %s is a text of %d bytes; it must be %s, %s or empty", Variable, len(mode), Update, Accept)
		return
	}
	files, err := s.Files()
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	before, err := read(folder)
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	breaks, err := compare(before, files)
	if err != nil {
		t.Errorf("%v", err)
		return
	}
	switch changed := differ(before, files); {
	case len(changed) == 0:
	case len(breaks) > 0 && mode != Accept:
		t.Errorf("contracts: %d changes break readers:\n  %s\nKeep the old format beside the new one, give the topic a version (outbox.Topic.WithVersion), or accept the changes: %s=%s go test",
			len(breaks), strings.Join(breaks, "\n  "), Variable, Accept)
	case mode == "":
		t.Errorf("contracts: the files in %s are out of date, and no change breaks a reader: %s. Write them: %s=%s go test",
			folder, strings.Join(changed, ", "), Variable, Update)
	default:
		if err := write(folder, before, files); err != nil {
			t.Errorf("%v", err)
			return
		}
		t.Logf("contracts: wrote %s in %s", strings.Join(changed, ", "), folder)
	}
}

// Files returns the files of the set by their names: a JSON Schema for each topic, and the AsyncAPI
// document. The error names the topic that has no schema.
func (s Set) Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	names := map[string]outbox.EventKind{} // in lower case, as some file systems compare them
	var errs []error
	for _, topic := range s.Topics {
		if topic == nil {
			errs = append(errs, errors.New("contracts: a topic is nil"))
			continue
		}
		kind := topic.Kind()
		name := fileName(kind)
		if strings.EqualFold(name, contract.AsyncAPIFile) {
			errs = append(errs, fmt.Errorf("contracts: the AsyncAPI document has the file %s; give %s an aggregate type", contract.AsyncAPIFile, kind))
			continue
		}
		if other, taken := names[strings.ToLower(name)]; taken {
			errs = append(errs, fmt.Errorf("contracts: %s and %s have the same file, %s; give each kind once", other, kind, name))
			continue
		}
		names[strings.ToLower(name)] = kind
		file, err := schemaFile(topic)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files[name] = file
	}
	if len(s.Topics) == 0 {
		errs = append(errs, errors.New("contracts: there are no topics"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	document, err := s.asyncAPI(files)
	if err != nil {
		return nil, err
	}
	files[contract.AsyncAPIFile] = document
	return files, nil
}

func fileName(kind outbox.EventKind) string {
	return contract.FileName(string(kind.AggregateType), string(kind.EventType))
}

// read returns the files of the folder, which need not exist yet.
func read(folder string) (map[string][]byte, error) {
	names, _ := fs.Glob(os.DirFS(folder), "*.json") // the folder's name is no pattern, and this pattern has no error
	files := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(folder, name)) //nolint:gosec // the folder is the test's
		if err != nil {
			return nil, fmt.Errorf("contracts: %w", err)
		}
		files[name] = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) // as Git may write it
	}
	return files, nil
}

// compare returns the changes that break a reader.
func compare(before, now map[string][]byte) (breaks []string, err error) {
	was, err := parse(before)
	if err != nil {
		return nil, err
	}
	is, err := parse(now)
	if err != nil {
		return nil, err
	}
	for _, change := range contract.DiffAll(was, is) {
		breaks = append(breaks, change.String())
	}
	return breaks, nil
}

func parse(files map[string][]byte) (map[string]*contract.Contract, error) {
	all := map[string]*contract.Contract{}
	for name, data := range files {
		if name == contract.AsyncAPIFile {
			continue
		}
		c, err := contract.Parse(data)
		if err == nil && c.EventType == "" {
			err = fmt.Errorf("it has no %s", contract.KeyEventType)
		}
		if err != nil {
			return nil, fmt.Errorf("contracts: %s is no file of this package: %w; keep other files in another folder", name, err)
		}
		all[name] = c
	}
	return all, nil
}

// differ returns the names of the files that differ.
func differ(before, now map[string][]byte) (names []string) {
	for name, data := range now {
		if !bytes.Equal(before[name], data) {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, stays := now[name]; !stays {
			names = append(names, name+" (gone)")
		}
	}
	slices.Sort(names)
	return names
}

func write(folder string, before, now map[string][]byte) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("contracts: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if err := os.WriteFile(filepath.Join(folder, name), now[name], 0o644); err != nil {
			return fmt.Errorf("contracts: %w", err)
		}
	}
	for name := range before {
		if _, stays := now[name]; stays {
			continue
		}
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("contracts: %w", err)
		}
	}
	return nil
}
