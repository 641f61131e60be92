package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSlowEndpointsHaveAPartOfTheWorkers(t *testing.T) {
	s := slow{most: 2, of: map[string]*pace{}}
	var hang []*call
	for _, id := range []string{"a", "a", "b", "c"} {
		c := s.begin(id)
		require.NotNil(t, c, "an endpoint that is not known as slow")
		hang = append(hang, c)
	}
	for i, goesOn := range []bool{true, true, false, false} {
		require.Equal(t, goesOn, hang[i].late(), "request %d", i)
	}
	good := s.begin("good")
	require.NotNil(t, good)
	for _, id := range []string{"a", "b", "c"} {
		require.Nil(t, s.begin(id), "slow, and there is no place")
	}
	good.end()
	require.NotContains(t, s.of, "good")

	hang[2].end()
	require.Nil(t, s.begin("b"), "a request that was given up had no place")
	hang[0].end()
	again := s.begin("b")
	require.NotNil(t, again)
	require.Nil(t, s.begin("c"))
	require.True(t, again.late(), "a request that began with a place goes on")
	again.end()
	require.NotNil(t, s.begin("c"), "there is a place again")
	require.Nil(t, s.begin("b"), "the last request of b was late, too")
}

func TestAnEndpointIsFastAgain(t *testing.T) {
	s := slow{most: 1, of: map[string]*pace{}}
	first, second := s.begin("a"), s.begin("a")
	require.True(t, first.late())
	require.Nil(t, s.begin("a"), "the endpoint is slow")
	second.end()
	third := s.begin("a")
	require.NotNil(t, third, "an endpoint that answers some requests is not slow because of another")
	third.end()
	first.end()
	require.True(t, s.of["a"].slow, "the last request to end was late")
	last := s.begin("a")
	require.NotNil(t, last, "there is a place again")
	last.end()
	require.True(t, last.late(), "a request that has ended is not late")
	require.NotContains(t, s.of, "a")
	require.Zero(t, s.busy)
}

func TestAnEndpointIsForgotten(t *testing.T) {
	s := slow{most: 1, of: map[string]*pace{}}
	c := s.begin("a")
	s.forget("a")
	require.Contains(t, s.of, "a", "a request runs")
	c.late()
	c.end()
	require.Contains(t, s.of, "a", "slow")
	s.forget("a")
	require.Empty(t, s.of)
}
