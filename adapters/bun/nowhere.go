package outboxbun

import (
	"context"
	"database/sql/driver"
)

// nowhere is a driver whose transactions do nothing.
type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nowhere{}, nil }
func (nowhere) Driver() driver.Driver                        { return nil }
func (nowhere) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (nowhere) Close() error                                 { return nil }
func (nowhere) Begin() (driver.Tx, error)                    { return nowhere{}, nil }
func (nowhere) Commit() error                                { return nil }
func (nowhere) Rollback() error                              { return nil }
