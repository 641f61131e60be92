package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/model"
)

// toy is a model of numbers: the steps from each, and those that are faults.
type toy struct {
	steps, faults map[int][]int
	rules         []model.Rule[int, number]
	settled       int
}

type number string

func (n number) String() string { return string(n) }

func (m toy) explore() model.Result {
	return model.Model[int, number]{
		Next: func(from int, yield func(number, bool, int)) {
			for _, to := range m.steps[from] {
				yield(number("to "+string(rune('0'+to))), false, to)
			}
			for _, to := range m.faults[from] {
				yield(number("down to "+string(rune('0'+to))), true, to)
			}
		},
		Rules: m.rules, Settled: func(n int) bool { return n == m.settled },
	}.Explore()
}

func TestTheCheckerVisitsEveryState(t *testing.T) {
	t.Parallel()
	r := toy{steps: map[int][]int{0: {1, 2}, 1: {3}, 2: {3}, 3: {0}}, settled: 3}.explore()
	require.Equal(t, model.Result{States: 4, Steps: 5, Depth: 2, Settled: 1}, r)
	require.Equal(t, "4 states, 5 steps, depth 2", r.String())
}

func TestTheCheckerPrintsAShortestWay(t *testing.T) {
	t.Parallel()
	r := toy{
		steps: map[int][]int{0: {1}, 1: {2}, 2: {5}}, faults: map[int][]int{0: {2}}, settled: 5,
		rules: []model.Rule[int, number]{{Name: "no five", Text: "Five is not reached.", Holds: func(_ int, _ number, to int) bool { return to != 5 }}},
	}.explore()
	require.Equal(t, "3 states, 4 steps, depth 0\nbroken rule \"no five\": Five is not reached.\n  1. down to 2 (fault)\n  2. to 5\n", r.String())
}

func TestTheCheckerFindsAnEndThatIsNotSettled(t *testing.T) {
	t.Parallel()
	r := toy{steps: map[int][]int{0: {1, 2}}, settled: 2}.explore()
	require.Equal(t, model.Stuck, r.Broken)
	require.Equal(t, []string{"to 1"}, r.Trace)
}

// 1 and 2 go on for ever. Only a fault would end that.
func TestTheCheckerFindsALoopWithoutAWayOut(t *testing.T) {
	t.Parallel()
	r := toy{steps: map[int][]int{0: {1, 3}, 1: {2}, 2: {1}}, faults: map[int][]int{2: {3}}, settled: 3}.explore()
	require.Equal(t, model.Reachable, r.Broken)
	require.Equal(t, []string{"to 1"}, r.Trace)
}
