package metricsandalerts_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func toZap(z *zap.Logger) *slog.Logger {
	logger := slog.New(zapslog.NewHandler(z.Core()))
	return logger
}

func toZerolog(z zerolog.Logger) *slog.Logger {
	logger := slog.New(zerolog.NewSlogHandler(z))
	return logger
}

func TestOtherLibrariesGetTheLines(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*bytes.Buffer) *slog.Logger{
		"zap": func(b *bytes.Buffer) *slog.Logger {
			encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
			return toZap(zap.New(zapcore.NewCore(encoder, zapcore.AddSync(b), zap.InfoLevel)))
		},
		"zerolog": func(b *bytes.Buffer) *slog.Logger { return toZerolog(zerolog.New(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var lines bytes.Buffer
			store := outboxtest.NewStore()
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}, Logger: of(&lines)})
			require.NoError(t, err)
			require.NoError(t, ob.Start(t.Context()))
			require.NoError(t, ob.Close(t.Context()))
			require.Contains(t, lines.String(), `"outbox: started"`)
			require.Contains(t, lines.String(), `"mode":"writer-only"`)
		})
	}
}
