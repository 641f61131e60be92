package pass_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/pass"
)

// The places of a table.
const (
	start = iota
	half
	most
)

var passTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAPassOfOneReadHasNoRowsBehind(t *testing.T) {
	t.Parallel()
	var p pass.Pass[int]
	p.BeginCycle()
	p.Begin(passTime, start)
	p.Read(p.Next(), half, true)
	require.False(t, p.MayHaveRowsBehind())
}

func TestAPassOfThisCycleHasNoRowsBehind(t *testing.T) {
	t.Parallel()
	var p pass.Pass[int]
	p.BeginCycle()
	p.Begin(passTime, start)
	p.Read(p.Next(), half, false)
	require.False(t, p.MayHaveRowsBehind(), "the pass has not ended")
	require.True(t, p.GoesOn(passTime, time.Second))
	require.Equal(t, half, p.Next())
	p.Read(p.Next(), most, true)
	require.False(t, p.MayHaveRowsBehind(), "this cycle began the pass")
	p.End()
	require.False(t, p.GoesOn(passTime, time.Second))
}

func TestAPassOfAnEarlierCycleMayHaveRowsBehind(t *testing.T) {
	t.Parallel()
	var p pass.Pass[int]
	p.BeginCycle()
	p.Begin(passTime, start)
	p.Read(p.Next(), half, false)
	p.BeginCycle()
	p.Read(p.Next(), most, true)
	require.True(t, p.MayHaveRowsBehind())
	p.End()
	p.Begin(passTime, start)
	p.Read(p.Next(), half, false)
	p.Read(p.Next(), most, true)
	require.False(t, p.MayHaveRowsBehind(), "this cycle began the second pass")
}

func TestAPassOverALongBacklogEndsAfterATime(t *testing.T) {
	t.Parallel()
	var p pass.Pass[int]
	p.Begin(passTime, start)
	p.Read(p.Next(), half, false)
	require.True(t, p.GoesOn(passTime.Add(time.Second), time.Second))
	require.False(t, p.GoesOn(passTime.Add(time.Second+1), time.Second))
}

func TestAPassMayBeginAtRecentRows(t *testing.T) {
	t.Parallel()
	var p pass.Pass[int]
	p.Begin(passTime, start)
	p.End()
	require.Equal(t, passTime, p.Swept())
	later := passTime.Add(time.Minute)
	p.Begin(later, half)
	require.Equal(t, half, p.Next())
	p.Read(p.Next(), most, true)
	require.False(t, p.MayHaveRowsBehind(), "it was one read")
	p.End()
	require.Equal(t, passTime, p.Swept(), "the pass was not over all rows")
	p.Begin(later, start)
	require.True(t, p.Swept().IsZero(), "until the pass over all rows has ended")
	p.End()
	require.Equal(t, later, p.Swept())
}

func TestAPassStartsOver(t *testing.T) {
	t.Parallel()
	var p pass.Pass[int]
	p.Begin(passTime, start)
	p.End()
	p.Begin(passTime, half)
	p.Read(p.Next(), half, false)
	p.ReadAgain()
	require.True(t, p.Next() == start)
	require.Equal(t, passTime, p.Swept())
	p.Read(p.Next(), half, false)
	p.StartOver()
	require.True(t, p.Next() == start && p.Swept().IsZero())
}

func TestAnotherGoroutineAsksForARestartOnce(t *testing.T) {
	t.Parallel()
	var p pass.Pass[int]
	require.False(t, p.RestartAsked())
	p.Restart()
	require.True(t, p.RestartAsked())
	require.False(t, p.RestartAsked())
}
