package outboxgorm_test

import (
	"context"
	"time"

	"gorm.io/gorm/logger"
)

// queryLog is a logger of GORM's that keeps the statements.
type queryLog struct{ queries []string }

func (l *queryLog) LogMode(logger.LogLevel) logger.Interface { return l }
func (l *queryLog) Info(context.Context, string, ...any)     {}
func (l *queryLog) Warn(context.Context, string, ...any)     {}
func (l *queryLog) Error(context.Context, string, ...any)    {}

func (l *queryLog) Trace(_ context.Context, _ time.Time, query func() (string, int64), _ error) {
	text, _ := query()
	l.queries = append(l.queries, text)
}
