package outboxconf_test

import (
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
)

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/configuration.md")
	require.NoError(t, err)
	return string(text)
}

func TestTheDocumentsTableHasEveryKeyAndItsModes(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile("(?m)^\\| `([a-z.-]+)` \\| [^|]+ \\| [^|]+ \\| ([a-z, -]+) \\| .+ \\|$").FindAllStringSubmatch(document(t), -1)
	texts := map[string]string{}
	for _, tc := range keyCases() {
		texts[tc.key] = cmp.Or(texts[tc.key], tc.text)
	}
	for key := range new(outboxfx.Config).Settings() {
		require.NotEmpty(t, rows, key)
		require.Contains(t, texts, key, "keyCases has every key")
		require.Equal(t, key, rows[0][1])
		var have []string
		_, more, _ := extra(key)
		for _, mode := range []string{"single-node", "multi-node", "ordered-by-key", "ordered", "writer-only"} {
			value := texts[key]
			if key == "mode" {
				value = mode
			}
			if _, err := outboxconf.Load("", variables(append(more, "OUTBOX_MODE="+mode, variableOf(key)+"="+value)...)); err == nil {
				have = append(have, mode)
			}
		}
		want := strings.Join(have, ", ")
		switch {
		case len(have) == 5:
			want = "all"
		case len(have) == 4 && have[3] == "ordered":
			want = "all but writer-only"
		}
		require.Equal(t, want, rows[0][2], key)
		rows = rows[1:]
	}
	require.Empty(t, rows)
}

func TestTheFilesInThePagesLoad(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"fx.md", "purge.md"} {
		text, err := os.ReadFile("../../docs/how-to/" + page)
		require.NoError(t, err)
		blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, blocks, page)
		for _, block := range blocks {
			c, err := outboxconf.Load(file(t, block[1]), variables())
			require.NoError(t, err, page)
			require.NotEqual(t, outboxfx.Config{}, c, page)
		}
	}
}

func TestTheSpecificationsKeysAreThoseOfTheTable(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile("(?m)^\\| `outbox\\.([a-z.-]+)` \\| `([a-z.-]+): ([^`]+)` \\|").FindAllStringSubmatch(document(t), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		mode := "multi-node"
		if row[2] == "mode" {
			mode = row[3]
		}
		_, more, _ := extra(row[2])
		_, err := outboxconf.Load("", variables(append(more, "OUTBOX_MODE="+mode, variableOf(row[2])+"="+row[3])...))
		require.NoError(t, err, row[1])
	}
}
