package model_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/model"
)

func TestTheSharesKeepTheirRules(t *testing.T) {
	t.Parallel()
	bounds := []model.Shares{{Processes: 2, Parts: 1}, {Processes: 2, Parts: 1, Faults: 1}, {Processes: 2, Parts: 2, Faults: 1}}
	if isLong() {
		bounds = append(bounds, model.Shares{Processes: 2, Parts: 2, Faults: 2}, model.Shares{Processes: 2, Parts: 3, Faults: 1}, model.Shares{Processes: 3, Parts: 1})
	}
	for _, m := range bounds {
		t.Run(fmt.Sprintf("%d processes, %d parts, %d faults", m.Processes, m.Parts, m.Faults), func(t *testing.T) {
			t.Parallel()
			r := m.Model().Explore()
			t.Log(r)
			require.Empty(t, r.Broken)
			require.Greater(t, r.States, 200)
			require.Positive(t, r.Settled)
		})
	}
}

func TestBrokenSharesBreakARule(t *testing.T) {
	t.Parallel()
	for mutation, want := range map[model.Mutation]string{
		model.SharesWithoutVersions: model.WithinLimits,
		model.SharesWithoutExpiry:   model.WithinLimits,
		model.ShareByDatabaseClock:  model.ActsOnItsOwn,
		model.ActsTooEarly:          model.ActsOnItsOwn,
		model.ShrinksTooLate:        model.ActsOnItsOwn,
		model.RunningIsForgotten:    model.WithinLimits,
		model.SharesWithoutTurns:    model.Reachable,
	} {
		t.Run(string(mutation), func(t *testing.T) {
			t.Parallel()
			r := model.Shares{Processes: 2, Parts: 1, Faults: 1, Broken: mutation}.Model().Explore()
			t.Log(r)
			require.Equal(t, want, r.Broken)
		})
	}
}
