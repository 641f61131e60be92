package main

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// watermillContenders are watermill-sql: a publisher in the transaction, and a subscriber on the
// same table. See peers.go for the settings.
//
// On MariaDB watermill-sql does not deliver while several transactions write: the subscriber reads
// behind the last offset, and skipped events whose transaction committed after a transaction with a
// higher offset (20 of 32 events arrived; version 4.1.3).
func watermillContenders() []contender {
	return []contender{
		{
			name: "watermill-sql", peer: true, on: postgresOnly, open: openWatermill,
			works: []string{"write", "many", "done", "drain/100k", "drain/held snapshot", "latency", "remote", "burst", "cost"},
		},
		{
			name: "watermill-sql", peer: true, on: []testdb.Kind{testdb.MySQL}, open: openWatermill,
			works: []string{"write/1 writer", "write/16 writers", "many", "done/write only", "drain/100k", "latency", "remote", "cost/backlog"},
		},
	}
}

const watermillTopic = "said"

type watermillSystem struct {
	db      *database
	pool    *sql.DB
	pools   pools
	schema  wsql.SchemaAdapter
	offsets wsql.OffsetsAdapter
	pending string
}

func openWatermill(ctx context.Context, db *database) (system, error) {
	var err error
	if db.prepares, err = refusesBytes(ctx, db); err != nil {
		return nil, err
	}
	pool, err := db.open()
	if err != nil {
		return nil, err
	}
	s := &watermillSystem{db: db, pool: pool, pools: pools{pool}}
	if db.kind == testdb.Postgres {
		s.schema = wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: watermillBatchSize}
		s.offsets = wsql.DefaultPostgreSQLOffsetsAdapter{}
		s.pending = `SELECT COUNT(*) FROM watermill_said WHERE (transaction_id, "offset") > (` +
			`COALESCE((SELECT last_processed_transaction_id FROM watermill_offsets_said), '0'), COALESCE((SELECT offset_acked FROM watermill_offsets_said), 0))`
	} else {
		s.schema = wsql.DefaultMySQLSchema{SubscribeBatchSize: watermillBatchSize}
		s.offsets = wsql.DefaultMySQLOffsetsAdapter{}
		s.pending = "SELECT COUNT(*) FROM watermill_said WHERE `offset` > COALESCE((SELECT offset_acked FROM watermill_offsets_said), 0)"
	}
	subscriber, err := s.subscriber(pool)
	if err != nil {
		return nil, err
	}
	return s, firstError(subscriber.SubscribeInitialize(watermillTopic), subscriber.Close())
}

// refusesBytes reports whether the database refuses the JSON that watermill-sql sends as bytes
// if the driver puts it into the statement: MySQL does, MariaDB does not.
func refusesBytes(ctx context.Context, db *database) (bool, error) {
	if db.kind != testdb.MySQL {
		return false, nil
	}
	var version string
	err := db.read(ctx, "SELECT version()", &version)
	return !strings.Contains(version, "MariaDB"), err
}

func (s *watermillSystem) subscriber(pool *sql.DB) (*wsql.Subscriber, error) {
	return wsql.NewSubscriber(wsql.BeginnerFromStdSQL(pool), wsql.SubscriberConfig{
		SchemaAdapter: s.schema, OffsetsAdapter: s.offsets, PollInterval: watermillPollInterval,
	}, watermill.NopLogger{})
}

// watermillRows keeps a message's three parameters below PostgreSQL's 65,535.
const watermillRows = 20_000

func (s *watermillSystem) Write(ctx context.Context, first, n int) error {
	tx, err := s.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, insertOrder(s.db.kind), strconv.Itoa(first), "tea"); err != nil {
		return err
	}
	publisher, err := wsql.NewPublisher(wsql.TxFromStdSQL(tx), wsql.PublisherConfig{SchemaAdapter: s.schema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	for end := first + n; first < end; first += watermillRows {
		messages := make([]*message.Message, min(end-first, watermillRows))
		for i := range messages {
			messages[i] = message.NewMessageWithContext(ctx, watermill.NewULID(), []byte(payload(first+i)))
		}
		if err := publisher.Publish(watermillTopic, messages...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *watermillSystem) Deliver(ctx context.Context, d delivery) (func() error, error) {
	pool := s.pool
	if d.apart {
		var err error
		if pool, err = s.db.open(); err != nil {
			return nil, err
		}
		s.pools = append(s.pools, pool)
	}
	subscriber, err := s.subscriber(pool)
	if err != nil {
		return nil, err
	}
	messages, err := subscriber.Subscribe(context.WithoutCancel(ctx), watermillTopic)
	if err != nil {
		return nil, fmt.Errorf("subscribing: %w", err)
	}
	go func() {
		for m := range messages {
			if d.listen(number(string(m.Payload))) == nil {
				m.Ack()
			} else {
				m.Nack()
			}
		}
	}()
	return subscriber.Close, nil
}

func (s *watermillSystem) Pending(ctx context.Context) (n int, err error) {
	err = s.pool.QueryRowContext(ctx, s.pending).Scan(&n)
	return n, err
}

func (s *watermillSystem) Close() error { return s.pools.close() }
