package gate_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/gate"
)

func TestAGateHasItsNumberOfPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(2, time.Second)
		first, second := g.Enter(t.Context()), g.Enter(t.Context())
		require.NotNil(t, first)
		require.NotNil(t, second)
		began := time.Now()
		require.Nil(t, g.Enter(t.Context()), "no place becomes free")
		require.Equal(t, time.Second, time.Since(began))
		go func() {
			time.Sleep(time.Second / 2)
			first()
			first() // gives back no other place
		}()
		third := g.Enter(t.Context())
		require.NotNil(t, third)
		require.Equal(t, 3*time.Second/2, time.Since(began))
		require.Nil(t, g.Enter(t.Context()), "the second call of first gave back nothing")
		ended, end := context.WithCancel(t.Context())
		end()
		require.Nil(t, g.Enter(ended))
		second()
		third()
	})
}

func TestNoGateLetsAllIn(t *testing.T) {
	t.Parallel()
	var g *gate.Gate
	g.Enter(t.Context())()
}
