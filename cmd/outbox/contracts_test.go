package main_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestContractsDiffFailsOnABreakingChange(t *testing.T) {
	t.Parallel()
	write := func(files map[string]string) string {
		folder := filepath.Join(t.TempDir(), "v[1]") // a name that is no pattern
		require.NoError(t, os.Mkdir(folder, 0o700))
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		}
		return folder
	}
	const kind = `{"x-aggregate-type":"Order","x-event-type":"Placed","properties":`
	old := write(map[string]string{"Order.Placed.json": kind + `{"total":{"type":"integer"}}}`, "asyncapi.json": `[]`})
	same := write(map[string]string{"Order.Placed.json": kind + `{"total":{"type":"integer"},"note":{}}}`, "Order.Paid.json": `{}`})
	broken := write(map[string]string{"Order.Placed.json": kind + `{"total":{"type":"string"}}}`})
	file := func(folder string) string { return filepath.Join(folder, "Order.Placed.json") }

	require.Equal(t, "no change breaks a reader (1 kinds)\n", ok(t, "", "contracts", "diff", old, same))
	for _, args := range [][]string{{old, broken}, {file(old), file(broken)}} {
		r := run(t, "", append([]string{"contracts", "diff"}, args...)...)
		require.Equal(t, 1, r.code)
		require.Empty(t, r.err)
		require.Contains(t, r.out, "Order/Placed  total  consumers and waiting events  was integer and is string")
	}
	r := run(t, "", "contracts", "diff", "--json", old, broken)
	require.Equal(t, 1, r.code)
	require.JSONEq(t, `[{"kind":"Order/Placed","path":"total","problem":"was integer and is string","breaks":"consumers and waiting events"}]`, r.out)

	for says, args := range map[string][]string{
		"takes two files or two folders; it got 1":     {old},
		"OLD and NEW are a file and a folder":          {file(old), old},
		"NEW is a folder without contracts":            {old, t.TempDir()},
		"reading OLD: ":                                {filepath.Join(old, "none"), old},
		"reading NEW: asyncapi.json is no JSON object": {file(old), filepath.Join(old, "asyncapi.json")},
	} {
		r := run(t, "", append([]string{"contracts", "diff"}, args...)...)
		require.NotZero(t, r.code, says)
		require.Contains(t, r.err, says)
	}
}
