package model_test

import (
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/model"
)

// The bounds within which the model of leases is explored as a whole.
var leaseBounds = map[string]model.Leases{
	"no fault":            {MaxAttempts: 2, Returns: true},
	"one attempt":         {MaxAttempts: 1, Faults: 2},
	"one fault":           {MaxAttempts: 2, Faults: 1, Returns: true},
	"one fault, a replay": {MaxAttempts: 2, Faults: 1, Replays: 1},
	"two faults":          {MaxAttempts: 2, Faults: 2},
	"three attempts":      {MaxAttempts: 3, Faults: 2},
}

// longBounds take minutes.
var longBounds = map[string]model.Leases{
	"two faults, events given back":  {MaxAttempts: 2, Faults: 2, Returns: true},
	"two faults, a replay":           {MaxAttempts: 2, Faults: 2, Replays: 1},
	"three faults":                   {MaxAttempts: 2, Faults: 3},
	"three faults of three attempts": {MaxAttempts: 3, Faults: 3},
}

// isLong asks for the bounds that take minutes.
func isLong() bool { return os.Getenv("OUTBOX_TEST_LONG") == "long" }

func TestTheLeasesKeepTheirRules(t *testing.T) {
	t.Parallel()
	bounds := maps.Clone(leaseBounds)
	if isLong() {
		maps.Copy(bounds, longBounds)
	}
	for name, m := range bounds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := m.Model().Explore()
			t.Log(r)
			require.Empty(t, r.Broken)
			require.Greater(t, r.States, 500)
			require.Positive(t, r.Settled)
		})
	}
}

// Each rule can fail: a model that is broken in one way breaks the rule that is meant for it.
func TestBrokenLeasesBreakARule(t *testing.T) {
	t.Parallel()
	two := model.Leases{MaxAttempts: 2, Faults: 2}
	returns := model.Leases{MaxAttempts: 2, Faults: 1, Returns: true}
	healthy := model.Leases{MaxAttempts: 2, Returns: true}
	for _, tc := range []struct {
		mutation model.Mutation
		m        model.Leases
		rule     string
	}{
		{model.MarkWithoutFence, two, model.Fence},
		{model.ReleaseWithoutName, returns, model.Fence},
		{model.RenewWithoutName, two, model.Fence},
		{model.NamesPerOwner, two, model.Fence},
		{model.TakeoverWithoutExpiry, healthy, model.Fence},
		{model.ClaimWithoutStatus, healthy, model.NoDuplicate},
		{model.HotWithoutLease, healthy, model.OneHolder},
		{model.LeasesAreNotRenewed, healthy, model.NoDuplicate},
		{model.CopiesAreDelivered, two, model.OneInProcess},
		{model.HotBeforeCommit, healthy, model.OnlyCommitted},
		{model.HotInDoubt, two, model.OnlyCommitted},
		{model.FailuresAreDone, healthy, model.DoneDelivered},
		{model.TakeoverUncounted, two, model.Attempts},
		{model.NeverExhausted, two, model.Attempts},
		{model.AttemptsLowered, two, model.Attempts},
		{model.ClaimsAreForgotten, two, model.NotForgotten},
		{model.LeaseAfterMarkForgotten, returns, model.NotForgotten},
		{model.NoTakeover, two, model.Stuck},
	} {
		t.Run(string(tc.mutation), func(t *testing.T) {
			t.Parallel()
			tc.m.Broken = tc.mutation
			r := tc.m.Model().Explore()
			t.Log(r)
			require.Equal(t, tc.rule, r.Broken)
			require.NotEmpty(t, r.Trace)
		})
	}
}
