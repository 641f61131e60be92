package dashboard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestSharesAreShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	require.NotContains(t, s.get("/shop/steering"), "Limits of all processes")
	until := time.Now().Add(time.Hour)
	value := fmt.Sprintf(`{"of":"Order/OrderPlaced","k":["Order","OrderPlaced"],"l":{"c":8,"r":2.5,"b":10},"m":[{"n":"node-1/ABCDEFGH","p":3,"o":8,"w":true,"t":%d},{"n":"<node-2>/ABCDEFGH","o":8,"w":true,"t":%d}]}`, until.UnixMicro(), until.UnixMicro())
	store := sqlstore.SQLite()
	for kind, value := range map[outbox.EventKind]string{orderPlaced: value, {EventType: "Idle"}: `{"k":["__GLOBAL__","Idle"],"l":{"c":2}}`} {
		set, err := store.SetShares(t.Context(), s.db.DB, kind, "", outbox.Shares{Version: "v", Value: value})
		require.NoError(t, err)
		require.True(t, set)
	}
	steering := s.get("/shop/steering")
	require.Regexp(t, `Order / OrderPlaced</th><td class="text" data-label="Limits">8 at once; 2.5 a second, burst 10</td><td class="text" data-label="Process">node-1</td><td data-label="Share">3 of 8</td><td data-label="Until"><time`, steering)
	require.Contains(t, steering, `&lt;node-2&gt;</td><td data-label="Share">waits</td>`)
	require.Regexp(t, `Idle</th><td class="text" data-label="Limits">2 at once</td><td colspan="3">No process has a share now`, steering)
}
