package model_test

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/model"
)

// The bounds within which the model of ranges is explored as a whole.
var rangeBounds = map[string]model.Ranges{
	"no fault":                     {Rows: 1, MaxAttempts: 3, Hot: true, Returns: true},
	"one fault, events given back": {Rows: 1, MaxAttempts: 2, Faults: 1, Hot: true, Returns: true},
	"one fault, a replay":          {Rows: 1, MaxAttempts: 2, Faults: 1, Replays: 1},
	"one fault, three attempts":    {Rows: 1, MaxAttempts: 3, Faults: 1},
	"two faults, one attempt":      {Rows: 1, MaxAttempts: 1, Faults: 2, Hot: true},
	"two rows":                     {Rows: 2, MaxAttempts: 2, Passes: true},
	"cancels, no fault":            {Rows: 1, MaxAttempts: 2, Hot: true, Returns: true, Cancels: true},
	"cancels, one fault":           {Rows: 1, MaxAttempts: 2, Faults: 1, Hot: true, Cancels: true},
	"cancels, one fault, a replay": {Rows: 1, MaxAttempts: 1, Faults: 1, Replays: 1, Returns: true, Cancels: true},
	"poison, one attempt":          {Rows: 1, MaxAttempts: 1, Poison: true, Hot: true},
	"poison, two attempts":         {Rows: 1, MaxAttempts: 2, Poison: true, Hot: true},
	"poison, three attempts":       {Rows: 1, MaxAttempts: 3, Poison: true, Hot: true},
	"poison, ten attempts":         {Rows: 1, MaxAttempts: 10, Poison: true, Hot: true},
}

// longRangeBounds take minutes.
var longRangeBounds = map[string]model.Ranges{
	"two faults":                                {Rows: 1, MaxAttempts: 2, Faults: 2},
	"two rows, one fault":                       {Rows: 2, MaxAttempts: 1, Faults: 1, Passes: true},
	"two faults, written under leases":          {Rows: 1, MaxAttempts: 2, Faults: 2, Hot: true},
	"two faults, three attempts":                {Rows: 1, MaxAttempts: 3, Faults: 2},
	"two faults, events given back":             {Rows: 1, MaxAttempts: 2, Faults: 2, Returns: true},
	"two faults, a replay":                      {Rows: 1, MaxAttempts: 2, Faults: 2, Replays: 1},
	"two faults, renewals without a deadline":   {Rows: 1, MaxAttempts: 2, Faults: 2, Broken: model.RenewsExpired},
	"cancels, two faults":                       {Rows: 1, MaxAttempts: 2, Faults: 2, Hot: true, Cancels: true},
	"three faults, one attempt":                 {Rows: 1, MaxAttempts: 1, Faults: 3},
	"three faults":                              {Rows: 1, MaxAttempts: 2, Faults: 3},
	"two rows, events given back":               {Rows: 2, MaxAttempts: 2, Passes: true, Returns: true},
	"two rows, one fault, written under leases": {Rows: 2, MaxAttempts: 1, Faults: 1, Passes: true, Hot: true, Succeeds: true},
}

func TestTheRangesKeepTheirRules(t *testing.T) {
	t.Parallel()
	bounds := maps.Clone(rangeBounds)
	if isLong() {
		maps.Copy(bounds, longRangeBounds)
	}
	for name, m := range bounds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := m.Model().Explore()
			t.Log(r)
			require.Empty(t, r.Broken)
			require.Greater(t, r.States, 50)
			require.Positive(t, r.Settled)
		})
	}
}

// Each rule can fail: a model that is broken in one way breaks the rule that is meant for it.
func TestBrokenRangesBreakARule(t *testing.T) {
	t.Parallel()
	healthy := model.Ranges{Rows: 1, MaxAttempts: 2}
	one := model.Ranges{Rows: 1, MaxAttempts: 2, Faults: 1}
	two := model.Ranges{Rows: 1, MaxAttempts: 2, Faults: 2}
	returns := model.Ranges{Rows: 1, MaxAttempts: 2, Faults: 1, Returns: true}
	returns2 := model.Ranges{Rows: 1, MaxAttempts: 2, Faults: 2, Returns: true}
	rows := model.Ranges{Rows: 2, MaxAttempts: 1, Faults: 1}
	passes := model.Ranges{Rows: 2, MaxAttempts: 2, Passes: true}
	lost := model.Ranges{Rows: 2, MaxAttempts: 1, Passes: true, Faults: 1}
	cancels := model.Ranges{Rows: 1, MaxAttempts: 2, Cancels: true}
	poison := model.Ranges{Rows: 1, MaxAttempts: 2, Poison: true}
	poison3 := model.Ranges{Rows: 1, MaxAttempts: 3, Poison: true}
	for _, tc := range []struct {
		mutation model.Mutation
		m        model.Ranges
		rule     string
	}{
		{model.SuspectsAtOnce, two, model.Fence},
		{model.ClaimsLate, returns2, model.Fence},
		{model.DropUnsure, returns2, model.Fence},
		{model.RenewsUnsure, two, model.Stuck},
		{model.SuspectsSkipped, two, model.Fence},
		{model.DoubtsAreDropped, two, model.Fence},
		{model.DropsAreReadAgain, returns, model.Fence},
		{model.OutcomesGivenUp, one, model.Fence},
		{model.CopiesKeepAttempts, two, model.Attempts},
		{model.CopiesOfRetries, two, model.Fence},

		{model.MarkWithoutPlace, two, model.Fence},
		{model.MarkWithoutNoLease, two, model.Fence},
		{model.SuspectsWithoutMove, returns2, model.Fence},
		{model.TakeoverOfFree, healthy, model.Fence},
		{model.BeginAfterEnd, one, model.OneHolder},
		{model.BeginInAnyRange, rows, model.OneHolder},
		{model.RangeOverExpired, one, model.NoOverlap},
		{model.SetWithoutVersion, one, model.NoOverlap},
		{model.DropInHand, healthy, model.Fence},
		{model.PassNeverOver, passes, model.Stuck},
		{model.PlaceBeforeSet, lost, model.PassedOver},
		{model.SuspectsCounted, one, model.Innocent},
		{model.DeliversAsRead, cancels, model.TakenBack},
		{model.CancelsAny, cancels, model.TakenBack},
		{model.DeathsForgotten, poison, model.Deaths},
		{model.DeathsNamedOnce, poison3, model.Deaths},
		{model.CopiesAreDelivered, one, model.OneInProcess},
		{model.FailuresAreDone, healthy, model.DoneDelivered},
		{model.NeverExhausted, two, model.Attempts},
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
