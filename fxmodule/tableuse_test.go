package outboxfx_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

func TestTwoOutboxesDoNotDeliverFromOneTable(t *testing.T) {
	t.Parallel()
	const clash = `outboxfx: the outbox "a" and the outbox "b" deliver from one table, outbox_event of the same *sql.DB`
	for _, tc := range []struct {
		name string
		a, b outboxfx.Config
		want string
	}{
		{"by default", outboxfx.Config{}, outboxfx.Config{}, clash},
		{"in different modes", outboxfx.Config{Mode: outboxfx.MultiNode}, outboxfx.Config{Mode: outboxfx.Ordered}, clash},
		{"as two nodes", outboxfx.Config{Mode: outboxfx.MultiNode}, outboxfx.Config{Mode: outboxfx.MultiNode}, ""},
		{"one only writes", outboxfx.Config{Mode: outboxfx.WriterOnly}, outboxfx.Config{}, ""},
		{"two tables", outboxfx.Config{TableName: "t"}, outboxfx.Config{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			db := openSQLite(t)
			err := newError(named("a", db), named("b", db),
				outboxfx.NewModule(outboxfx.Named("b"), outboxfx.WithConfig(tc.b)), outboxfx.NewModule(outboxfx.Named("a"), outboxfx.WithConfig(tc.a)))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
	require.NoError(t, newError(named("a", openSQLite(t)), fx.Supply(openSQLite(t)), outboxfx.Module, outboxfx.NewModule(outboxfx.Named("a"))))
}
