package outboxfx

import (
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// setting is one key of the configuration.
type setting struct {
	path     string // such as "dispatcher.worker-count"
	variable string // its part of a variable's name, such as "DISPATCHER_WORKER_COUNT"
	index    []int  // of the field in Config
	kind     reflect.Type
}

// settings are all keys, in the order of Config's fields.
var settings = settingsOf(reflect.TypeFor[Config](), "", nil)

func settingsOf(t reflect.Type, prefix string, index []int) []setting {
	var list []setting
	for i := range t.NumField() {
		f := t.Field(i)
		path := prefix + f.Tag.Get("yaml")
		at := append(append([]int(nil), index...), i)
		if f.Type.Kind() == reflect.Struct {
			list = append(list, settingsOf(f.Type, path+".", at)...)
			continue
		}
		list = append(list, setting{path: path, variable: variableName(path), index: at, kind: f.Type})
	}
	return list
}

// settingAt finds a key.
func settingAt(path string) (setting, bool) {
	for _, s := range settings {
		if s.path == path {
			return s, true
		}
	}
	return setting{}, false
}

// settingOf finds the key of a variable without its prefix.
func settingOf(variable string) (setting, bool) {
	for _, s := range settings {
		if s.variable == variable {
			return s, true
		}
	}
	return setting{}, false
}

// isSection reports whether a path is that of a group of keys.
func isSection(path string) bool {
	for _, s := range settings {
		if strings.HasPrefix(s.path, path+".") {
			return true
		}
	}
	return false
}

func (s setting) section() string {
	section, _, nested := strings.Cut(s.path, ".")
	if !nested {
		return ""
	}
	return section
}

// field is the setting's field of a Config.
func (s setting) field(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(s.index)
}

// modes are the modes that have the setting.
func (s setting) modes() []Mode {
	switch {
	case s.section() == "dispatcher", s.section() == "retry":
		return []Mode{SingleNode, MultiNode}
	case s.section() == "poller", s.path == "purge.on-done":
		return []Mode{SingleNode, MultiNode, Ordered}
	case s.section() == "claim-locking":
		return []Mode{MultiNode}
	default:
		return []Mode{SingleNode, MultiNode, Ordered, WriterOnly}
	}
}

// limit is the largest number that package outbox takes, so that an error names
// the key and its place.
func (s setting) limit() int {
	switch s.path {
	case "dispatcher.worker-count":
		return outbox.MaxWorkers
	case "dispatcher.hot-queue-capacity", "dispatcher.cold-queue-capacity":
		return outbox.MaxQueueCapacity
	case "poller.batch-size", "purge.batch-size":
		return outbox.MaxBatch
	default:
		return math.MaxInt
	}
}

// mayBeZero reports whether a zero that is written down says something, and not
// the default.
func (s setting) mayBeZero() bool {
	switch s.path {
	case "poller.skip-recent", "dispatcher.listener-timeout", "dispatcher.defer-unroutable", "purge.retention":
		return true
	default:
		return s.kind != reflect.TypeFor[int]() && s.kind != reflect.TypeFor[time.Duration]()
	}
}
