package check_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
)

var variable = regexp.MustCompile(`\bOUTBOX_[A-Z_]+[A-Z]\b`)

// wrongSettings names the YAML and JSON of a page that does not parse, configurations
// that outboxconf refuses, and environment variables that nothing reads.
func wrongSettings(t *testing.T, p page, isRead func(variable string) bool) (problems []string) {
	t.Helper()
	blocks, _ := p.parts()
	for _, b := range blocks {
		var err error
		switch b.kind {
		case "json":
			err = json.Unmarshal([]byte(b.text), new(any))
		case "yaml":
			err = readsYAML(t, b.text)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s:%d: the block of %s: %v", p.path, b.line, b.kind, err))
		}
	}
	for i, line := range strings.Split(p.text, "\n") {
		for _, name := range variable.FindAllString(line, -1) {
			if !isRead(name) {
				problems = append(problems, fmt.Sprintf("%s:%d: nothing reads the variable %s", p.path, i+1, name))
			}
		}
	}
	return problems
}

// readsYAML parses the documents of a text. A configuration of an outbox, with or without
// the key outbox above it, is loaded.
func readsYAML(t *testing.T, text string) error {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var document map[string]any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		options := []outboxconf.Option{outboxconf.Environ(nil)}
		if _, below := document["outbox"]; below {
			options = append(options, outboxconf.Section("outbox"))
		} else if !isConfiguration(document) {
			continue
		}
		file := filepath.Join(t.TempDir(), "outbox.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := outboxconf.Load(file, options...); err != nil {
			return err
		}
	}
}

func isConfiguration(document map[string]any) bool {
	for key := range new(outboxfx.Config).Settings() {
		section, _, _ := strings.Cut(key, ".")
		if _, has := document[section]; has {
			return true
		}
	}
	return false
}

// variableOf is the environment variable of a key.
func variableOf(key string) string {
	return "OUTBOX_" + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(key))
}

func TestSettingsOnPagesAreRead(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	for key := range new(outboxfx.Config).Settings() {
		read[variableOf(key)] = true
	}
	for file, text := range goFiles(t) {
		if !strings.HasPrefix(file, "docs/") {
			for _, name := range variable.FindAllString(text, -1) {
				read[name] = true
			}
		}
	}
	check(t, func(p page) []string {
		return wrongSettings(t, p, func(name string) bool { return read[name] })
	})
}

func TestASettingThatNothingReadsIsNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"`OUTBOX_MODE`, those that begin with `OUTBOX_ORDERS_`": "",
		"set OUTBOX_MODUS": "a.md:1: nothing reads the variable OUTBOX_MODUS",
		"```yaml\nmode: multi-node\npoller:\n  interval: 1s\n```":            "",
		"```yaml\nmode: multi-node\npoller:\n  intervall: 1s\n```":           "poller.intervall",
		"```yaml\noutbox:\n  poller:\n    interval: 1\n```":                  "poller.interval",
		"```yaml\nkind: Deployment\n---\nkind: Service\n```":                 "",
		"```yaml\nkind: Deployment\n  name: x\n```":                          "the block of yaml",
		"```json\n{\"a\": 1}\n```":                                           "",
		"```json\n{\"a\": …}\n```":                                           "the block of json",
		"```console\nOUTBOX_MODUS=ordered OUTBOX_MODE=ordered go run .\n```": "OUTBOX_MODUS",
	} {
		problems := wrongSettings(t, page{"a.md", text}, func(name string) bool { return name == "OUTBOX_MODE" })
		if want == "" {
			require.Empty(t, problems, text)
			continue
		}
		require.Len(t, problems, 1, text)
		require.Contains(t, problems[0], want, text)
	}
}
