package inbox

import (
	"context"
	"fmt"
	"time"
)

// purgeBatch is the most rows that a statement of Purge deletes.
const (
	purgeBatch     = "1000"
	purgeBatchRows = 1000
)

// Purge deletes the records that are older than age, by the database's clock, in batches of 1,000,
// each in a separate transaction. Purge returns how many records it deleted, also with an error. A
// message that comes again after the record was purged is handled again: choose an age far above
// the longest time after which your source delivers a message once more. The age must be positive.
func (box *Inbox) Purge(ctx context.Context, db Execer, age time.Duration) (deleted int64, err error) {
	if age <= 0 {
		return 0, fmt.Errorf("inbox: Purge age is %s; it must be positive", age)
	}
	what := fmt.Sprintf("purging records older than %s", age)
	for {
		res, err := db.ExecContext(ctx, box.purge, age.Microseconds())
		if err != nil {
			return deleted, box.fail(what, err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return deleted, box.fail(what, err)
		}
		if deleted += n; n < purgeBatchRows {
			return deleted, nil
		}
	}
}
