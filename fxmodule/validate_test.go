package outboxfx

import (
	"errors"
	"fmt"
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
		{Config{Mode: Ordered, Dispatch: DispatchConfig{DrainTimeout: time.Second, ListenerTimeout: time.Second, OnUnroutable: LeaveUnroutable}}, ""},
		{Config{Mode: Ordered, Retry: RetryConfig{BaseDelay: 1}}, "retry.base-delay is set"},
		{Config{Mode: WriterOnly, Poll: PollConfig{SkipRecent: 1}}, "poller.skip-recent is set, but the mode writer-only does not have it; it is for single-node, multi-node, ordered"},
		{Config{Mode: WriterOnly, Dispatch: DispatchConfig{DrainTimeout: 1}}, "dispatcher.drain-timeout is set"},
		{Config{Mode: WriterOnly, Purge: PurgeConfig{OnDone: Keep}}, "purge.on-done is set"},
		{Config{Mode: WriterOnly, Purge: PurgeConfig{Enabled: &yes, Undelivered: true}}, ""},
		{Config{Purge: PurgeConfig{Enabled: &yes, Undelivered: true}}, "purge.undelivered is set, but the mode single-node does not have it; it is for writer-only"},
		{Config{Claim: ClaimConfig{Owner: "n"}}, "claim-locking.owner-id is set, but the mode single-node does not have it; it is for multi-node"},
		{Config{Claim: ClaimConfig{Enabled: &yes}}, "claim-locking.enabled is set"},
		{Config{Claim: ClaimConfig{Enabled: &no}}, ""},
		{Config{Mode: MultiNode, Claim: ClaimConfig{Enabled: &no}}, "claim-locking.enabled is false, but the mode multi-node needs leases"},
		{Config{Mode: MultiNode, Claim: ClaimConfig{Enabled: &yes}}, ""},
		{Config{Mode: WriterOnly, Version: "v1.2.3"}, ""},
		{Config{Version: "v1\nv2"}, "program-version holds the control character U+000A"},
	} {
		err := tc.cfg.Validate()
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		require.Contains(t, withoutFields(err), tc.want)
	}
	err := Config{Mode: "x", Purge: PurgeConfig{OnDone: "y"}}.Validate()
	require.Contains(t, withoutFields(err), "mode is")
	require.Contains(t, withoutFields(err), "purge.on-done is", "everything is reported at once")
}

// withoutFields removes the names of the fields from an error.
func withoutFields(err error) string {
	return regexp.MustCompile(` \(Config\.[^)]+\)`).ReplaceAllString(fmt.Sprint(err), "")
}

// setOutOfRange sets a field to a value that its rule refuses; false where every value is valid.
func setOutOfRange(field string, pointer any) bool {
	switch p := pointer.(type) {
	case *int:
		*p = 1 << 30
		if field == "Dispatch.MaxAttempts" { // has no upper limit
			*p = -2
		}
	case *time.Duration:
		*p = 1
		if strings.HasPrefix(field, "Retry.") { // has no lower limit but zero
			*p = -1
		}
	case *[]KindConfig:
		*p = []KindConfig{{EventType: "Paid", Expires: 1}}
	case *Mode:
		*p = "x"
	case *OnUnroutable:
		*p = "x"
	case *OnDone:
		*p = "x"
	case *OnDead:
		*p = "x"
	case *string:
		*p = "\x00"
		return field != "Metrics.NamePrefix" // the metrics check it
	default: // true and false
		return false
	}
	return true
}

func TestAValueOutOfRangeIsAnErrorOfItsKey(t *testing.T) {
	t.Parallel()
	var fields int
	settings(reflect.ValueOf(new(Config)).Elem(), "", func(field string, _ any) bool {
		want := keyError(field, "")
		for _, mode := range modesOf(want.Key) {
			c := Config{Mode: mode}
			if strings.HasPrefix(field, "Purge.") {
				c.Purge.Enabled = pointer(false)
			}
			for key, setting := range c.Settings() {
				if key == want.Key && !setOutOfRange(field, setting) {
					return true
				}
			}
			err := c.Validate()
			var got *KeyError
			require.ErrorAs(t, err, &got, "%s in %s", field, mode)
			require.NotContains(t, err.Error(), "\n", "one error")
			require.Equal(t, want.Key, strings.TrimSuffix(got.Key, "[0].expires"))
			require.Equal(t, want.Place, strings.TrimSuffix(got.Place, "[0].Expires"))
		}
		fields++
		return true
	})
	require.Equal(t, 25, fields, "all fields but true-or-false fields and the prefix")
}

func TestTheErrorsOfKindsHaveTheKeysOfTheirElements(t *testing.T) {
	t.Parallel()
	err := Config{Dispatch: DispatchConfig{Workers: -1}, Kinds: []KindConfig{
		{EventType: "a", Concurrency: 1},
		{Rate: 2e6},
		{EventType: "a.b", AggregateType: "\x00", Concurrency: -1, Rate: 1, Burst: -1, MaxAttempts: -2},
		{EventType: "a", Rate: 1, OnDone: "x", Retention: 3, Retry: RetryConfig{BaseDelay: 2, MaxDelay: 1}},
	}, Poll: PollConfig{Interval: 1}}.Validate()
	for _, want := range []string{
		`dispatcher.worker-count (Config.Dispatch.Workers) is -1; it must not be negative`,
		`kinds[1].event-type (Config.Kinds[1].EventType) is required`,
		`kinds[1].rate (Config.Kinds[1].Rate) is 2e+06 deliveries a second; the limit is 1e+06`,
		`kinds[2].aggregate-type (Config.Kinds[2].AggregateType) holds a NUL character, which databases do not store`,
		`kinds[2].max-attempts (Config.Kinds[2].MaxAttempts) is -2; it must be positive, or outbox.Endless`,
		`kinds[2].concurrency (Config.Kinds[2].Concurrency) is -1; it must not be negative`,
		`kinds[2].burst (Config.Kinds[2].Burst) is -1; it must not be negative`,
		`kinds[3] (Config.Kinds[3]) is __GLOBAL__/a, as in element 0; put the rules of a kind into one element`,
		`kinds[3].on-done (Config.Kinds[3].OnDone) is "x"; it must be one of keep, delete`,
		`kinds[3].retry.max-delay (Config.Kinds[3].Retry.MaxDelay) is 1ns, which is less than retry.base-delay, 2ns`,
		`kinds[3].retention (Config.Kinds[3].Retention) is set, but purge.enabled is not`,
		`poller.interval (Config.Poll.Interval) is 1ns, less than a millisecond; did you mean 1s?`,
	} {
		require.ErrorContains(t, err, want)
	}
	err = Config{Mode: Ordered, Kinds: []KindConfig{{EventType: "a", MaxAttempts: 3, Retry: RetryConfig{BaseDelay: 1}, Expires: time.Hour}}}.Validate()
	require.ErrorContains(t, err, "kinds[0].max-attempts (Config.Kinds[0].MaxAttempts) is 3, but Ordered has one worker")
	require.ErrorContains(t, err, "kinds[0].retry (Config.Kinds[0].Retry) is set, but Ordered")
}

// Package outbox reports a problem with the name of its own field, for which keyErrors needs the key.
func TestEachOptionOfPackageOutboxHasAKey(t *testing.T) {
	t.Parallel()
	c := Config{Kinds: []KindConfig{{EventType: "a"}}}
	for section, options := range map[string]reflect.Type{
		"Config.Mode.Dispatch.":                     reflect.TypeFor[outbox.DispatchOptions](),
		"Config.Mode.Poll.":                         reflect.TypeFor[outbox.PollOptions](),
		"Config.Mode.Claim.":                        reflect.TypeFor[outbox.ClaimOptions](),
		"Config.Purge.":                             reflect.TypeFor[outbox.PurgeOptions](),
		"Config.Mode.Dispatch.Rules[__GLOBAL__/a].": reflect.TypeFor[outbox.Rules](),
		"Config.Mode.":                              reflect.TypeFor[outbox.Ordered](),
	} {
		for i := range options.NumField() {
			if name := options.Field(i).Name; name != "SharedWorkers" && name != "Poll" && name != "Rules" { // a Go value; a section; by kind
				require.Len(t, c.keyErrors(fmt.Errorf("outbox: %w", &outbox.FieldError{Field: section + name})), 1, section+name)
			}
		}
	}
	require.Len(t, c.keyErrors(&outbox.FieldError{Field: "Config.Mode.RunLength"}), 1)
	require.Empty(t, c.keyErrors(errors.Join(&outbox.FieldError{Field: "Config.Store"}, &outbox.FieldError{Field: "Config.Mode.Dispatch.SharedWorkers"})))
}

func TestAConfigBecomesTheOptionsOfTheOutbox(t *testing.T) {
	t.Parallel()
	full := Config{
		Dispatch: DispatchConfig{Workers: 1, PollerOnly: true, HotCapacity: 2, ColdCapacity: 3, MaxAttempts: 4, DrainTimeout: 5, ListenerTimeout: 6, OnUnroutable: KillUnroutable, MarkInterval: 15},
		Poll:     PollConfig{Interval: 8, BatchSize: 9, SkipRecent: 10},
		Claim:    ClaimConfig{Owner: "n", LeaseDuration: 11, TenantsInTurn: true},
		Purge:    PurgeConfig{Enabled: pointer(true), Retention: 12, BatchSize: 13, Interval: 14, OnDone: Delete, Undelivered: true},
	}
	dispatch := outbox.DispatchOptions{Workers: 1, PollerOnly: true, HotCapacity: 2, ColdCapacity: 3, MaxAttempts: 4, DrainTimeout: 5, ListenerTimeout: 6, OnUnroutable: outbox.KillUnroutable, MarkInterval: 15}
	poll := outbox.PollOptions{Interval: 8, BatchSize: 9, SkipRecent: 10}
	for mode, want := range map[Mode]outbox.Mode{
		SingleNode: outbox.SingleNode{Dispatch: dispatch, Poll: poll},
		MultiNode:  outbox.MultiNode{Dispatch: dispatch, Poll: poll, Claim: outbox.ClaimOptions{Owner: "n", LeaseDuration: 11, TenantsInTurn: true}},
		Ordered:    outbox.Ordered{Poll: poll, DrainTimeout: 5, ListenerTimeout: 6, OnUnroutable: outbox.KillUnroutable},
		WriterOnly: outbox.WriterOnly{},
	} {
		full.Mode = mode
		require.Equal(t, outbox.Config{Mode: want, Purge: &outbox.PurgeOptions{Retention: 12, BatchSize: 13, Interval: 14, OnDone: outbox.Delete, Undelivered: true}}, full.outboxConfig(nil))
	}
	require.Equal(t, outbox.Config{Mode: outbox.SingleNode{}}, Config{}.outboxConfig(nil))
	require.NotNil(t, Config{Retry: RetryConfig{MaxDelay: 1}}.outboxConfig(nil).RetryPolicy)
	late := outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{{AggregateType: outbox.Global, EventType: "a"}: {MaxDueAge: 16}}}
	require.Equal(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: late}}, Config{Kinds: []KindConfig{{EventType: "a", MaxDueAge: 16}}}.outboxConfig(nil))
}

// The tags let others fill a Config: both say the same key.
func TestTagsAgree(t *testing.T) {
	t.Parallel()
	var check func(typ reflect.Type)
	check = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			require.NotEmpty(t, f.Tag.Get("yaml"), f.Name)
			require.Equal(t, f.Tag.Get("yaml"), f.Tag.Get("mapstructure"))
			if f.Type.Kind() == reflect.Struct {
				check(f.Type)
			}
		}
	}
	check(reflect.TypeFor[Config]())
}

func pointer[T any](v T) *T { return &v }
