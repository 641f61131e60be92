package outboxconf_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
)

// FuzzLoad feeds the parser any file and any variable: it never panics, and what
// it accepts is valid.
func FuzzLoad(f *testing.F) {
	for _, tc := range keyCases() {
		f.Add(yamlOf(tc.key, tc.text), variableOf(tc.key), tc.text, "")
	}
	f.Add("a: &a {mode: ordered}\n<<: *a\n", "OUTBOX_MODE", "ordered", "a")
	f.Add("dispatcher: {worker-count: 0x10, 1: {2: 3}}\n? [x]\n: y\n", "OUTBOX_X", "", "dispatcher")
	f.Add("a: &a [*a, *a]\n", "OUTBOX_.", "\x00", ".")
	f.Fuzz(func(t *testing.T, text, variable, value, section string) {
		c, err := outboxconf.Load(file(t, text), variables(variable+"="+value), outboxconf.Section(section))
		if err == nil {
			require.NoError(t, c.Validate())
			return
		}
		require.Equal(t, outboxfx.Config{}, c)
		var key *outboxfx.KeyError
		if errors.As(err, &key) {
			require.NotEmpty(t, key.Key+key.Place)
			require.NotEmpty(t, key.Problem)
		}
	})
}
