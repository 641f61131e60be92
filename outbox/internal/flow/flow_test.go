package flow_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/flow"
)

// element is an element of a path, with a weight.
type element struct {
	path   string
	weight int64
}

func weight(e *element) int64 { return e.weight }

// filled has n elements of a weight.
func filled(path string, n int, o flow.Options[*element]) *flow.Queue[*element] {
	q := flow.New(o)
	for range n {
		q.Push(&element{path, 1})
	}
	return q
}

func queues(hot, ahead, cold int) *flow.Queues[*element] {
	o := flow.Options[*element]{Capacity: 12}
	return &flow.Queues[*element]{Hot: filled("h", hot, o), Ahead: filled("a", ahead, o), Cold: filled("c", cold, o)}
}

// takeAll has a single taker take n elements, and returns their paths.
func takeAll(q *flow.Queues[*element], n int, quit, abort chan struct{}) (paths string) {
	for turn := range n {
		e := q.Take(turn, quit, abort)
		if e == nil {
			return paths
		}
		paths += e.path
	}
	return paths
}

func signalled(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestTwoHotElementsGoToOneOther(t *testing.T) {
	t.Parallel()
	require.Equal(t, "hhchhchhc", takeAll(queues(6, 0, 12), 9, nil, nil))
	require.Equal(t, "hhahhahhc", takeAll(queues(6, 2, 12), 9, nil, nil), "an element ahead goes before the cold elements")
}

func TestNoTakerSleepsWhileAnElementWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, "hhh", takeAll(queues(3, 0, 0), 3, nil, nil))
		require.Equal(t, "aaa", takeAll(queues(0, 3, 0), 3, nil, nil))
		require.Equal(t, "ccc", takeAll(queues(0, 0, 3), 3, nil, nil))
	})
}

func TestATakerWakesForAnElementOfEachQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queues(0, 0, 0)
		for path, one := range map[string]*flow.Queue[*element]{"h": q.Hot, "a": q.Ahead, "c": q.Cold} {
			for turn := range 3 {
				taken := make(chan *element)
				go func() { taken <- q.Take(turn, nil, nil) }()
				synctest.Wait()
				one.Push(&element{path, 1})
				require.Equal(t, path, (<-taken).path)
			}
		}
	})
}

func TestAfterQuitTheRestIsTaken(t *testing.T) {
	t.Parallel()
	quit := make(chan struct{})
	close(quit)
	require.Len(t, takeAll(queues(9, 9, 9), 30, quit, nil), 27)
	one := filled("l", 40, flow.Options[*element]{Capacity: 40})
	for range 40 {
		require.NotNil(t, one.Take(quit, nil))
	}
	require.Nil(t, one.Take(quit, nil))
}

func TestAfterAbortNothingIsTaken(t *testing.T) {
	t.Parallel()
	abort := make(chan struct{})
	close(abort)
	require.Empty(t, takeAll(queues(3, 2, 4), 9, nil, abort))
	require.Nil(t, filled("l", 2, flow.Options[*element]{Capacity: 2}).Take(nil, abort))
}

func TestAQueueIsFullByTheWeightOfItsElements(t *testing.T) {
	t.Parallel()
	q := flow.New(flow.Options[*element]{Capacity: 6, Weight: weight})
	require.True(t, q.Offer(&element{weight: 4}))
	require.Equal(t, []int{4, 2}, []int{q.Depth(), q.Room()})
	require.True(t, q.Offer(&element{weight: 3}), "there is some room")
	require.Equal(t, []int{7, 0}, []int{q.Depth(), q.Room()})
	require.False(t, q.Offer(&element{weight: 1}))
	require.True(t, q.Push(&element{weight: 2}))
	for _, depth := range []int{5, 2, 0} {
		q.TakeLeft()
		require.Equal(t, depth, q.Depth())
	}
}

func TestARefusedElementDoesNotCount(t *testing.T) {
	t.Parallel()
	q := flow.New(flow.Options[*element]{Capacity: 1, Spare: 1, Weight: weight})
	require.True(t, q.Push(&element{weight: 3}))
	require.True(t, q.Push(&element{weight: 3}))
	require.False(t, q.Push(&element{weight: 3}), "the spare room is used up")
	require.Equal(t, 6, q.Depth())
}

func TestTheColdQueueCountsWeightsWhoeverTakes(t *testing.T) {
	t.Parallel()
	quit := make(chan struct{})
	for turn := range 3 {
		q := queues(0, 0, 0)
		wake := make(chan struct{}, 1)
		q.Cold = flow.New(flow.Options[*element]{Capacity: 6, Wake: wake, Weight: weight})
		for _, take := range []func() *element{
			func() *element { return q.Take(turn, quit, nil) }, q.TakeLeft, q.Cold.TakeLeft, func() *element { return q.Cold.Take(quit, nil) },
		} {
			q.Cold.Push(&element{weight: 4})
			require.True(t, q.Cold.IsFull())
			require.NotNil(t, take())
			require.Zero(t, q.Cold.Depth())
			require.True(t, signalled(wake))
		}
	}
}

func TestElementsThatWaitElsewhereCount(t *testing.T) {
	t.Parallel()
	wake := make(chan struct{}, 1)
	q := filled("c", 2, flow.Options[*element]{Capacity: 3, LowWater: 1, Wake: wake})
	q.TakeLeft()
	q.Elsewhere(1)
	require.True(t, q.Offer(&element{}))
	require.False(t, q.Offer(&element{}))
	require.True(t, q.IsFull())
	q.TakeLeft()
	require.False(t, signalled(wake), "two wait")
	q.Elsewhere(-1)
	require.True(t, signalled(wake))
	require.Equal(t, 1, q.Depth())
}

func TestAQueueWakesWhoFoundItFull(t *testing.T) {
	t.Parallel()
	wake := make(chan struct{}, 1)
	q := filled("c", 6, flow.Options[*element]{Capacity: 6, LowWater: 3, Wake: wake})
	takeThree := func() {
		for range 3 {
			require.False(t, signalled(wake))
			q.TakeLeft()
		}
	}
	takeThree()
	require.False(t, signalled(wake), "nobody waits")
	require.False(t, q.IsFull(), "at LowWater")
	for range 3 {
		q.Push(&element{})
	}
	require.True(t, q.IsFull())
	takeThree()
	require.True(t, signalled(wake))
	q.TakeLeft()
	require.False(t, signalled(wake), "there is one token for each wait")
}

// If a token is lost, the filler sleeps beside an empty queue.
func TestNoTokenIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const elements, takers = 5_000, 3
		wake, quit := make(chan struct{}, 1), make(chan struct{})
		q := flow.New(flow.Options[*element]{Capacity: 2, LowWater: 1, Wake: wake})
		var all sync.WaitGroup
		var taken [takers]int
		for i := range takers {
			all.Go(func() {
				for q.Take(quit, nil) != nil {
					taken[i]++
				}
			})
		}
		for put := 0; put < elements; {
			if q.IsFull() {
				<-wake
			}
			if q.Offer(&element{}) {
				put++
			}
		}
		close(quit)
		all.Wait()
		require.Equal(t, elements, taken[0]+taken[1]+taken[2])
	})
}

func TestABoundLeavesLessRoom(t *testing.T) {
	t.Parallel()
	wake := make(chan struct{}, 1)
	q := filled("c", 3, flow.Options[*element]{Capacity: 8, LowWater: 4, Wake: wake})
	require.False(t, q.IsFull())
	q.Bound(4)
	require.Equal(t, []int{3, 1}, []int{q.Depth(), q.Room()})
	require.True(t, q.IsFull(), "above half of the bound")
	require.True(t, q.Offer(&element{}))
	require.False(t, q.Offer(&element{}))
	q.TakeLeft()
	require.False(t, signalled(wake))
	q.TakeLeft()
	require.True(t, signalled(wake), "half of the bound")
	q.Bound(0)
	for q.TakeLeft() != nil {
		require.Zero(t, q.Room())
	}
	require.True(t, q.IsFull(), "there is never room")
	require.False(t, q.Offer(&element{}))
	require.False(t, signalled(wake))
	q.Bound(20)
	require.True(t, signalled(wake), "there is room again")
	require.Equal(t, 8, q.Room())
}

func lane(capacity, spare int) (l *flow.Lane[*element], wake chan struct{}) {
	wake = make(chan struct{}, 1)
	return flow.NewLane(flow.Options[*element]{Capacity: capacity, Spare: spare, LowWater: capacity / 2, Wake: wake}), wake
}

// Writers and the poller offer at the same time.
func TestALaneTakesNoMoreThanItsCapacityFromManyAtOnce(t *testing.T) {
	t.Parallel()
	for range 2_000 {
		l, _ := lane(16, 16)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range l.Capacity {
					l.Offer(&element{})
				}
			})
		}
		all.Wait()
		require.Equal(t, l.Capacity, l.Depth())
	}
}

func TestALaneHasSpareRoomForElementsThatAreNotRefused(t *testing.T) {
	t.Parallel()
	l, _ := lane(2, 3)
	for range 2 {
		require.True(t, l.Offer(&element{}))
	}
	for range 3 {
		require.False(t, l.Offer(&element{}))
		require.True(t, l.Push(&element{}))
	}
	require.False(t, l.Push(&element{}))
	require.Zero(t, l.Room(), "it is not negative")
}

func TestALaneWakesItsFillerForAnElementThatIsLeft(t *testing.T) {
	t.Parallel()
	l, wake := lane(4, 0)
	l.Leave()
	require.True(t, signalled(wake), "there is room")
	for range 4 {
		l.Offer(&element{})
	}
	l.Leave()
	require.False(t, signalled(wake), "there is no room")
	l.TakeLeft()
	require.False(t, signalled(wake))
	l.TakeLeft()
	require.True(t, signalled(wake), "the lane is half empty")
}

func TestALaneIsFilledIfNoElementWasLeftMeanwhile(t *testing.T) {
	t.Parallel()
	l, _ := lane(4, 0)
	l.Leave()
	left := l.Left()
	l.Leave()
	l.Filled(left)
	require.EqualValues(t, 2, l.Left())
	l.Filled(l.Left())
	require.Zero(t, l.Left())
}

// BenchmarkOfferAndTake measures what a queue costs for an element.
func BenchmarkOfferAndTake(b *testing.B) {
	o := flow.Options[*element]{Capacity: 4}
	cold := flow.Options[*element]{Capacity: 4, LowWater: 2, Wake: make(chan struct{}, 1), Weight: weight}
	q := flow.Queues[*element]{Hot: flow.New(o), Ahead: flow.New(o), Cold: flow.New(cold)}
	l := flow.NewLane(o)
	quit, abort, e := make(chan struct{}), make(chan struct{}), &element{weight: 1}
	for name, pass := range map[string]func(turn int){
		"hot":  func(turn int) { q.Hot.Offer(e); q.Take(turn, quit, abort) },
		"cold": func(turn int) { q.Cold.Offer(e); q.Take(turn, quit, abort) },
		"lane": func(int) { l.Offer(e); l.Take(quit, abort) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			turn := 0
			for b.Loop() {
				pass(turn)
				turn++
			}
		})
	}
}
