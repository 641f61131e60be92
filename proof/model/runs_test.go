package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/model"
)

func TestRunsKeepTheirRules(t *testing.T) {
	t.Parallel()
	r := model.Runs{}.Model().Explore()
	t.Log(r)
	require.Empty(t, r.Broken)
	require.Greater(t, r.States, 100)
	require.Positive(t, r.Settled)
}

func TestBrokenRunsBreakARule(t *testing.T) {
	t.Parallel()
	for mutation, want := range map[model.Mutation]string{
		model.RunsAreNotChecked:   model.OneAtATime,
		model.RunsAreCheckedEarly: model.OneAtATime,
		model.LeasesAreOverlooked: model.OneAtATime,
	} {
		t.Run(string(mutation), func(t *testing.T) {
			t.Parallel()
			r := model.Runs{Broken: mutation}.Model().Explore()
			t.Log(r)
			require.Equal(t, want, r.Broken)
		})
	}
}
