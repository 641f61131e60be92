package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// listed returns the ids of a listing, in its order.
func listed(t *testing.T, dsn string, flags ...string) (ids []string) {
	t.Helper()
	for _, e := range answer(t, dsn, append([]string{"events", "list"}, flags...)...)["events"].([]any) {
		ids = append(ids, e.(map[string]any)["event_id"].(string))
	}
	return ids
}

func TestEventsAreFoundByIDErrorAndState(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		ctx, at := t.Context(), time.Now().UTC().Truncate(time.Second)
		later := envelope("z-later")
		later.AvailableAt = at.Add(time.Hour)
		s.insert(t, envelope("a%1"), envelope("a_1"), envelope(`a\1`), envelope("A%1"), envelope("b-failed"), envelope("c-leased"), later)
		next := at.Add(2 * time.Hour)
		_, err := s.store.Mark(ctx, s.DB, outbox.OutcomeRetry, []outbox.Mark{{EventID: "b-failed", Error: "Connection REFUSED: 100% of \x1b[31mthe quota", Attempts: 3, AvailableAt: next}})
		require.NoError(t, err)
		_, err = s.store.Claim(ctx, s.DB, outbox.ClaimQuery{Now: time.Now(), Limit: 1, Lease: "node-1/7", LeaseDuration: time.Minute, EventIDs: []string{"c-leased"}})
		require.NoError(t, err)

		require.Equal(t, []string{"a%1"}, listed(t, s.DSN, "--id-prefix", "a%"))
		require.Equal(t, []string{"a_1"}, listed(t, s.DSN, "--id-prefix", "a_"))
		require.Equal(t, []string{`a\1`}, listed(t, s.DSN, "--id-prefix", `a\`))
		require.Equal(t, []string{"a_1", `a\1`, "a%1"}, listed(t, s.DSN, "--id-prefix", "a"))
		require.Equal(t, []string{"b-failed"}, listed(t, s.DSN, "--error-text", "connection refused: 100% of"))
		require.Empty(t, listed(t, s.DSN, "--error-text", "100_"))
		require.Equal(t, []string{"b-failed"}, listed(t, s.DSN, "--status", "retry"))
		require.Equal(t, []string{"c-leased"}, listed(t, s.DSN, "--status", "leased"))
		require.Equal(t, []string{"z-later", "b-failed"}, listed(t, s.DSN, "--status", "Delayed"))
		require.Equal(t, []string{"b-failed"}, listed(t, s.DSN, "--status", "delayed", "--aggregate-id", "o-b-failed"))
		require.Len(t, listed(t, s.DSN, "--status", "due"), 5)
		require.Len(t, listed(t, s.DSN, "--status", "waiting"), 7)

		r := run(t, s.DSN, "events", "list")
		require.Zero(t, r.code, r.err)
		require.Equal(t, "Looked at 7 rows; found 7.\n", r.err)
		lines := map[string]string{}
		for _, line := range strings.Split(r.out, "\n") {
			if fields := strings.Fields(line); len(fields) > 0 {
				lines[fields[0]] = line
			}
		}
		require.Regexp(t, `RETRY +Order/OrderPlaced +o-b-failed +3 +`+next.Format(time.RFC3339)+` .* - +- +Connection REFUSED: 100% of \\x1b\[31mthe quota`, lines["b-failed"])
		require.Regexp(t, `NEW .* node-1/7 +2\d{3}-\S+Z +-$`, lines["c-leased"])
		event := answer(t, s.DSN, "events", "list", "--status", "leased")["events"].([]any)[0].(map[string]any)
		require.Equal(t, "node-1/7", event["lease"])
		require.NotEmpty(t, event["leased_at"])
	})
}

func TestAListingGoesOnAndSaysHowFarItLooked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *shop) {
		envs := make([]outbox.Envelope, 2*outbox.SearchLimit+500)
		for i := range envs {
			envs[i] = envelope(fmt.Sprintf("e%06d", i))
		}
		envs[0].TenantID, envs[1].TenantID = "rare", "rare"
		s.insert(t, envs...)

		r := run(t, s.DSN, "events", "list", "--tenant", "rare")
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, "e000001")
		require.Contains(t, r.out, "e000000")
		require.Equal(t, "Looked at 4500 rows; found 2.\n", r.err, "no index is for tenants")
		require.Equal(t, []string{"e000001"}, listed(t, s.DSN, "--tenant", "rare", "--limit", "1"))

		for _, bound := range [][]string{{"--max-rows", "100"}, {"--max-time", "1ns"}} {
			args := append([]string{"--tenant", "rare"}, bound...)
			page := answer(t, s.DSN, append([]string{"events", "list"}, args...)...)
			require.Empty(t, page["events"], bound)
			require.EqualValues(t, outbox.SearchLimit, page["looked_at"], bound)
			require.Equal(t, []string{"e000001", "e000000"}, listed(t, s.DSN, "--tenant", "rare", "--after", page["next"].(string)), bound)
		}

		r = run(t, s.DSN, "events", "list", "--aggregate-id", "o-e000000")
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.err, "Looked at 4500 rows; found 1.\nThis read many rows: an index would find an aggregate id without reading other rows: CREATE INDEX ")
		missing := answer(t, s.DSN, "events", "list", "--aggregate-id", "o-e000000")["missing_index"].(map[string]any)
		require.Equal(t, "sqlstore.WithSearchIndex()", missing["option"])
		_, err := s.ExecContext(t.Context(), missing["ddl"].(string))
		require.NoError(t, err)
		page := answer(t, s.DSN, "events", "list", "--aggregate-id", "o-e000000")
		require.Len(t, page["events"], 1)
		require.EqualValues(t, 1, page["looked_at"])
		require.NotContains(t, page, "missing_index")
	})
}

func TestWrongSearchesAreNamed(t *testing.T) {
	t.Parallel()
	s := open(t, testdb.Open(t, testdb.Main()[2]))
	for want, args := range map[string][]string{
		"--status has an unknown status, or several of which one stands alone": {"--status", "due,retry"},
		"--id-prefix is 200 characters long; the limit is 36":                  {"--id-prefix", strings.Repeat("x", 200)},
		"--error-text is not UTF-8":                                            {"--error-text", "\xff"},
		"--max-rows is 0; it must be from 1":                                   {"--max-rows", "0"},
		"--max-time must be longer than zero":                                  {"--max-time", "0s"},
		"--id-prefix is empty; leave it out":                                   {"--id-prefix", ""},
	} {
		require.Contains(t, fails(t, 2, s.DSN, append([]string{"events", "list"}, args...)...), want)
	}
}
