package outboxgorm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestLostAnswerToCommitIsUnknown(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, direct *testdb.DB) {
		adaptertest.Exec(t, direct.DB, "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
		for i, prepare := range []bool{false, true} {
			proxied, cuts := direct.CutCommits(t)
			writer, record := adaptertest.WriterWithoutTable(t, proxied.DB, string(direct.Kind))
			db := open(t, proxied, &gorm.Config{PrepareStmt: prepare, TranslateError: true})
			a, err := outboxgorm.New(db, writer)
			require.NoError(t, err)
			err = db.Transaction(func(tx *gorm.DB) error {
				_, err := a.Write(t.Context(), tx, adaptertest.Event())
				return err
			})
			require.Equal(t, int32(1), cuts.Load())
			require.ErrorIs(t, err, outbox.ErrOutcomeUnknown)
			eventually(t, record, "unknown")
			require.Equal(t, i+1, adaptertest.Written(t, direct.DB), "it was committed all the same")
		}
	})
}

// GORM does not tell the caller of Create that COMMIT failed, or how: the
// handle's error does, and the events' callbacks are right in any case.
func TestLostAnswerToTheCommitOfAnImplicitTransaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Servers(), func(t *testing.T, direct *testdb.DB) {
		require.NoError(t, openPlain(t, direct, &gorm.Config{}).AutoMigrate(&order{}))
		adaptertest.Exec(t, direct.DB, "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
		proxied, _ := direct.CutCommits(t)
		writer, record := adaptertest.WriterWithoutTable(t, proxied.DB, string(direct.Kind))
		db := open(t, proxied, &gorm.Config{})
		a, err := outboxgorm.New(db, writer)
		require.NoError(t, err)
		err = db.Create(&order{hook: func(tx *gorm.DB) error {
			_, err := a.Write(t.Context(), tx, adaptertest.Event())
			return err
		}}).Error
		require.ErrorIs(t, err, outbox.ErrOutcomeUnknown)
		eventually(t, record, "unknown")
	})
}

func TestMigratorCommitsOnMySQL(t *testing.T) {
	t.Parallel()
	each(t, targetsOf(testdb.MySQL), func(t *testing.T, f *fixture) {
		tx := f.Begin()
		f.write(tx)
		require.NoError(t, tx.AutoMigrate(&invoice{}))
		require.ErrorIs(t, f.refused(tx), outbox.ErrNoTransaction)
		require.NoError(t, tx.Rollback().Error)
		f.want(1, "unknown")
	})
}

func eventually(t *testing.T, record *adaptertest.Record, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(record.Outcomes()) >= len(want) }, 20*time.Second, time.Millisecond)
	require.ElementsMatch(t, want, record.Outcomes())
}
