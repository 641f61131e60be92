package outboxfx_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
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
		{"in other letters", outboxfx.Config{TableName: "OUTBOX_event"}, outboxfx.Config{}, `deliver from one table, OUTBOX_event alias outbox_event of the same *sql.DB`},
		{"with the schema that is meant anyway", outboxfx.Config{}, outboxfx.Config{TableName: "main.Outbox_Event"}, `deliver from one table, outbox_event alias main.Outbox_Event of the same *sql.DB`},
		{"in another schema", outboxfx.Config{}, outboxfx.Config{TableName: "temp.outbox_event"}, ""},
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
	// PostgreSQL, asked by nobody here, tells letters apart and looks in public.
	db := openSQLite(t)
	postgres := func(table string) outboxfx.Option {
		return outboxfx.WithStore(sqlstore.Postgres(sqlstore.WithTable(table)))
	}
	for table, clashes := range map[string]bool{"public.outbox_event": true, "Outbox_event": false, "main.outbox_event": false} {
		err := newError(named("a", db), named("b", db),
			outboxfx.NewModule(outboxfx.Named("a"), postgres("outbox_event")), outboxfx.NewModule(outboxfx.Named("b"), postgres(table)))
		if clashes {
			require.ErrorContains(t, err, "deliver from one table, outbox_event alias "+table)
			continue
		}
		require.NoError(t, err)
	}
	require.NoError(t, newError(named("a", openSQLite(t)), fx.Supply(openSQLite(t)), outboxfx.Module, outboxfx.NewModule(outboxfx.Named("a"))))
}
