package outboxfx

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestValidateNamesEachKeyThatIsWrong(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, tc := range []struct {
		cfg  Config
		want string // empty: no error
	}{
		{Config{}, ""},
		{Config{Mode: "WRITER_ONLY"}, ""},
		{Config{Mode: "multi"}, `mode is "multi"; it must be one of single-node, multi-node, ordered-by-key, ordered, writer-only`},
		{Config{Purge: PurgeConfig{OnDone: "remove"}}, `purge.on-done is "remove"; it must be one of keep, delete`},
		{Config{Dispatch: DispatchConfig{Workers: -1}}, "dispatcher.worker-count is -1; it must not be negative"},
		{Config{Poll: PollConfig{Interval: -time.Second}}, "poller.interval is -1s; it must not be negative"},
		{Config{Purge: PurgeConfig{Enabled: &yes, Retention: outbox.NoRetention}}, ""},
		{Config{Purge: PurgeConfig{Enabled: &yes}}, ""},
		{Config{Purge: PurgeConfig{Enabled: &no, Retention: time.Hour, OnDone: Delete}}, ""},
		{Config{Purge: PurgeConfig{Retention: time.Hour}}, "purge.retention is set, but purge.enabled is not; set that to true to delete old rows, or to false to keep them"},
		{Config{Purge: PurgeConfig{BatchSize: 1}}, "purge.batch-size is set, but purge.enabled is not"},
		{Config{Purge: PurgeConfig{Interval: time.Hour}}, "purge.interval is set, but purge.enabled is not"},
		{Config{Purge: PurgeConfig{OnDone: Keep}}, "purge.on-done is set, but purge.enabled is not"},
		{Config{Retry: RetryConfig{BaseDelay: 2, MaxDelay: 1}}, "retry.max-delay is 1ns, which is less than retry.base-delay, 2ns"},
		{Config{Mode: Ordered, Dispatch: DispatchConfig{Workers: 4}}, "dispatcher.worker-count is set, but the mode ordered does not have it; it is for single-node, multi-node"},
		{Config{Mode: Ordered, Dispatch: DispatchConfig{DrainTimeout: 1, ListenerTimeout: 1, DeferUnroutable: 1}}, ""},
		{Config{Mode: Ordered, Retry: RetryConfig{BaseDelay: 1}}, "retry.base-delay is set"},
		{Config{Mode: WriterOnly, Poll: PollConfig{SkipRecent: 1}}, "poller.skip-recent is set, but the mode writer-only does not have it; it is for single-node, multi-node, ordered"},
		{Config{Mode: WriterOnly, Dispatch: DispatchConfig{DrainTimeout: 1}}, "dispatcher.drain-timeout is set"},
		{Config{Mode: WriterOnly, Purge: PurgeConfig{OnDone: Keep}}, "purge.on-done is set"},
		{Config{Claim: ClaimConfig{Owner: "n"}}, "claim-locking.owner-id is set, but the mode single-node does not have it; it is for multi-node"},
		{Config{Claim: ClaimConfig{Enabled: &yes}}, "claim-locking.enabled is set"},
		{Config{Claim: ClaimConfig{Enabled: &no}}, ""},
		{Config{Mode: MultiNode, Claim: ClaimConfig{Enabled: &no}}, "claim-locking.enabled is false, but the mode multi-node needs leases"},
		{Config{Mode: MultiNode, Claim: ClaimConfig{Enabled: &yes}}, ""},
	} {
		err := tc.cfg.Validate()
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.want)
	}
	err := Config{Mode: "x", Purge: PurgeConfig{OnDone: "y"}}.Validate()
	require.ErrorContains(t, err, "mode is")
	require.ErrorContains(t, err, "purge.on-done is", "everything is reported at once")
}

func TestAConfigBecomesTheOptionsOfTheOutbox(t *testing.T) {
	t.Parallel()
	full := Config{
		Dispatch: DispatchConfig{Workers: 1, PollerOnly: true, HotCapacity: 2, ColdCapacity: 3, MaxAttempts: 4, DrainTimeout: 5, ListenerTimeout: 6, DeferUnroutable: 7, MarkInterval: 15},
		Poll:     PollConfig{Interval: 8, BatchSize: 9, SkipRecent: 10},
		Claim:    ClaimConfig{Owner: "n", LeaseDuration: 11, TenantsInTurn: true},
		Purge:    PurgeConfig{Enabled: new(true), Retention: 12, BatchSize: 13, Interval: 14, OnDone: Delete},
	}
	dispatch := outbox.DispatchOptions{Workers: 1, PollerOnly: true, HotCapacity: 2, ColdCapacity: 3, MaxAttempts: 4, DrainTimeout: 5, ListenerTimeout: 6, DeferUnroutable: 7, MarkInterval: 15}
	poll := outbox.PollOptions{Interval: 8, BatchSize: 9, SkipRecent: 10}
	for mode, want := range map[Mode]outbox.Mode{
		SingleNode: outbox.SingleNode{Dispatch: dispatch, Poll: poll},
		MultiNode:  outbox.MultiNode{Dispatch: dispatch, Poll: poll, Claim: outbox.ClaimOptions{Owner: "n", LeaseDuration: 11, TenantsInTurn: true}},
		Ordered:    outbox.Ordered{Poll: poll, DrainTimeout: 5, ListenerTimeout: 6, DeferUnroutable: 7},
		WriterOnly: outbox.WriterOnly{},
	} {
		full.Mode = mode
		require.Equal(t, outbox.Config{Mode: want, Purge: &outbox.PurgeOptions{Retention: 12, BatchSize: 13, Interval: 14, OnDone: outbox.Delete}}, full.outboxConfig(nil))
	}
	require.Equal(t, outbox.Config{Mode: outbox.SingleNode{}}, Config{}.outboxConfig(nil))
	require.NotNil(t, Config{Retry: RetryConfig{MaxDelay: 1}}.outboxConfig(nil).RetryPolicy)
}

// The tags let others fill a Config: each says the same key. envconfig makes the variable's name of
// the tag envconfig, or else of the words of the field's name.
func TestTagsAgree(t *testing.T) {
	t.Parallel()
	words := regexp.MustCompile(`[A-Z]+[a-z]*`)
	var check func(typ reflect.Type)
	check = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			require.Equal(t, f.Tag.Get("yaml"), f.Tag.Get("mapstructure"))
			name, tagged := f.Tag.Lookup("envconfig")
			if !tagged {
				require.Equal(t, "true", f.Tag.Get("split_words"), f.Name)
				name = strings.ToUpper(strings.Join(words.FindAllString(f.Name, -1), "_"))
			}
			require.Equal(t, strings.ToUpper(strings.ReplaceAll(f.Tag.Get("yaml"), "-", "_")), name, f.Name)
			if f.Type.Kind() == reflect.Struct {
				check(f.Type)
			}
		}
	}
	check(reflect.TypeFor[Config]())
}
