package outboxfx_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

// path is what a Config is commonly made of.
type path string

// To fx an optional value whose constructor cannot be called is as good as none.
func TestAConfigThatCannotBeMadeIsNoDefault(t *testing.T) {
	t.Parallel()
	type in struct {
		fx.In
		Path path `name:"config path"`
	}
	type out struct {
		fx.Out
		Config outboxfx.Config
	}
	type many struct {
		fx.In
		Paths []path `group:"paths"`
	}
	const through = "outboxfx: the Config of the outbox has a constructor that needs, through the constructor of "
	const lacks = ", a *outboxfx_test.absent, which the app does not provide"
	needyPath := func(*absent) path { return "" }
	for _, tc := range []struct {
		name string
		opt  fx.Option
		want string
	}{
		{"through another", fx.Provide(needyPath, func(path) (outboxfx.Config, error) { return outboxfx.Config{}, nil }), through + "outboxfx_test.path" + lacks},
		{"through two others", fx.Provide(needyPath, func(path) int { return 1 }, func(int) outboxfx.Config { return outboxfx.Config{} }), through + "outboxfx_test.path" + lacks},
		{"through the second of two", fx.Provide(needyPath, func() int { return 1 }, func(int, path) outboxfx.Config { return outboxfx.Config{} }), through + "outboxfx_test.path" + lacks},
		{
			"through a named one", fx.Provide(fx.Annotate(needyPath, fx.ResultTags(`name:"config path"`)), func(in) outboxfx.Config { return outboxfx.Config{} }),
			through + "outboxfx_test.path[name=config path]" + lacks,
		},
		{"through another to several results", fx.Provide(needyPath, func(path) out { return out{} }), through + "outboxfx_test.path" + lacks},
		{
			"through a group", fx.Provide(fx.Annotate(needyPath, fx.ResultTags(`group:"paths"`)), func(many) outboxfx.Config { return outboxfx.Config{} }),
			through + "outboxfx_test.path[group=paths]",
		},
		{
			"private in a module", fx.Module("config", fx.Provide(needyPath, fx.Private), fx.Provide(func(path) outboxfx.Config { return outboxfx.Config{} })),
			through + "outboxfx_test.path" + lacks,
		},
		{"a pointer", fx.Supply(&outboxfx.Config{}), "outboxfx: the Config of the outbox is provided as a pointer, *outboxfx.Config, which nobody would read; provide the Config itself"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := newError(fx.Supply(openSQLite(t)), outboxfx.Module, tc.opt)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestAConfigThatCanBeMadeMayBeZero(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]fx.Option{
		"through another":            fx.Provide(func() path { return "" }, func(path) outboxfx.Config { return outboxfx.Config{} }),
		"through an optional one":    fx.Provide(fx.Annotate(func(path) outboxfx.Config { return outboxfx.Config{} }, fx.ParamTags(`optional:"true"`))),
		"through a lifecycle":        fx.Provide(func(fx.Lifecycle, fx.Shutdowner, fx.DotGraph) outboxfx.Config { return outboxfx.Config{} }),
		"of a pointer":               fx.Options(fx.Supply(&outboxfx.Config{}), fx.Provide(func(c *outboxfx.Config) outboxfx.Config { return *c })),
		"beside another's pointer":   fx.Supply(fx.Annotate(&outboxfx.Config{}, fx.ResultTags(`name:"orders"`))),
		"beside what nobody can use": fx.Provide(func(*absent) path { return "" }),
		"private, of the module's own parts": fx.Module("config",
			fx.Provide(func() path { return "" }, fx.Private), fx.Provide(func(path) outboxfx.Config { return outboxfx.Config{} })),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, newError(fx.Supply(openSQLite(t)), outboxfx.Module, opt))
		})
	}
}
