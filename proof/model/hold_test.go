package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/model"
)

func TestTheHoldKeepsItsRules(t *testing.T) {
	t.Parallel()
	bounds := []uint8{0, 1}
	if isLong() {
		bounds = append(bounds, 2)
	}
	for _, faults := range bounds {
		r := model.Holds{Faults: faults}.Model().Explore()
		t.Logf("%d faults: %s", faults, r)
		require.Empty(t, r.Broken)
		require.Greater(t, r.States, 40)
		require.Positive(t, r.Settled)
	}
}

func TestABrokenHoldBreaksARule(t *testing.T) {
	t.Parallel()
	for mutation, want := range map[model.Mutation]string{
		model.HoldWithoutExpiry:    model.HolderLooks,
		model.HoldByDatabaseClock:  model.HolderLooks,
		model.TermsAreOne:          model.HolderLooks,
		model.WorkersDoNotLook:     model.HolderLooks,
		model.WorkersLookAhead:     model.OneInFlight,
		model.CloseWithoutDraining: model.NoDuplicate,
		model.FailuresAreDone:      model.DoneDelivered,
		model.RetryOfAnyStatus:     model.FinalDone,
	} {
		t.Run(string(mutation), func(t *testing.T) {
			t.Parallel()
			r := model.Holds{Faults: 2, Broken: mutation}.Model().Explore()
			t.Log(r)
			require.Equal(t, want, r.Broken)
		})
	}
}
