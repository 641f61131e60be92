package outboxfx_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

// fieldsOf are all keys of a Config and their fields.
func fieldsOf(v reflect.Value, prefix string) (keys []string, fields map[string]reflect.Value) {
	fields = map[string]reflect.Value{}
	for i := range v.NumField() {
		key := prefix + v.Type().Field(i).Tag.Get("yaml")
		if v.Field(i).Kind() == reflect.Struct {
			more, inner := fieldsOf(v.Field(i), key+".")
			keys = append(keys, more...)
			for k, f := range inner {
				fields[k] = f
			}
			continue
		}
		keys, fields[key] = append(keys, key), v.Field(i)
	}
	return keys, fields
}

func TestTheDocumentsTableIsTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/FX.md")
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `([a-z.-]+)` \\| `(OUTBOX_[A-Z_]+)` \\| (.+?) \\| (.+?) \\| .+ \\|$").FindAllStringSubmatch(string(text), -1)

	defaults := outboxfx.Config{Mode: outboxfx.MultiNode}.WithDefaults()
	defaults.Mode = outboxfx.Config{}.WithDefaults().Mode
	keys, fields := fieldsOf(reflect.ValueOf(defaults), "")
	texts := map[string]string{}
	for _, tc := range keyCases() {
		texts[tc.key] = tc.text
	}
	require.Len(t, rows, len(keys))
	for i, row := range rows {
		key, variable, def, modes := row[1], row[2], row[3], row[4]
		require.Equal(t, keys[i], key)
		require.Equal(t, variableOf(key), variable)
		require.Contains(t, texts, key, "keyCases has every key")
		switch key {
		case "claim-locking.enabled":
			require.Equal(t, "as the mode", def)
		case "claim-locking.owner-id":
			require.Equal(t, "host, process id and a random part", def)
		case "metrics.enabled":
			require.Equal(t, "`true` with metrics", def)
		case "tracing.enabled":
			require.Equal(t, "`true` with `WithOTel`", def)
		default:
			require.Equal(t, "`"+show(fields[key].Interface())+"`", def, key)
		}

		var have []string
		for _, mode := range []string{"single-node", "multi-node", "ordered", "writer-only"} {
			value := texts[key]
			if key == "mode" {
				value = mode
			}
			if _, err := outboxfx.LoadConfig("", variables("OUTBOX_MODE="+mode, variable+"="+value)); err == nil {
				have = append(have, mode)
			}
		}
		want := strings.Join(have, ", ")
		if len(have) == 4 {
			want = "all"
		}
		require.Equal(t, want, modes, key)
	}
}

// show is a default as the document writes it.
func show(value any) string {
	if d, isDuration := value.(time.Duration); isDuration {
		s := d.String()
		if strings.HasSuffix(s, "m0s") {
			s = strings.TrimSuffix(s, "0s")
		}
		if strings.HasSuffix(s, "h0m") {
			s = strings.TrimSuffix(s, "0m")
		}
		return s
	}
	return fmt.Sprint(value)
}

// The tags let others fill a Config: each says the same key.
func TestTagsAgree(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile(`[A-Z]+[a-z]*`)
	var check func(typ reflect.Type)
	check = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			require.Equal(t, f.Tag.Get("yaml"), f.Tag.Get("mapstructure"))
			// envconfig makes a variable's name of the field's.
			require.Equal(t, "true", f.Tag.Get("split_words"))
			require.Equal(t, f.Tag.Get("yaml"), strings.ToLower(strings.Join(words.FindAllString(f.Name, -1), "-")))
			if f.Type.Kind() == reflect.Struct {
				check(f.Type)
			}
		}
	}
	check(reflect.TypeFor[outboxfx.Config]())
}

func TestTheDocumentsSetUpCompiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/FX.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```go\n(func main.+?)```").FindStringSubmatch(string(text))
	require.NotNil(t, block)
	require.LessOrEqual(t, strings.Count(block[1], "\n"), 40)
	source := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(source, []byte(`package main

import (
	"context"
	"database/sql"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

func newSQLDB(fx.Lifecycle) (*sql.DB, error) { return nil, nil }

`+block[1]), 0o600))
	out, err := exec.CommandContext(t.Context(), "go", "vet", source).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
