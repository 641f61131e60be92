package echomw

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/labstack/echo/v4"
)

// logger is a [slog.Handler] that writes to Echo's log.
type logger struct{ echo echo.Logger }

func (logger) Enabled(context.Context, slog.Level) bool { return true }
func (l logger) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l logger) WithGroup(string) slog.Handler          { return l }

func (l logger) Handle(_ context.Context, record slog.Record) error {
	text := "echomw: " + record.Message
	record.Attrs(func(a slog.Attr) bool {
		text += fmt.Sprint(": ", a.Value)
		return true
	})
	if record.Level < slog.LevelError {
		l.echo.Warn(text)
	} else {
		l.echo.Error(text)
	}
	return nil
}
