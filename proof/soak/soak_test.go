package soak_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/proof/soak"
)

// A short soak: each event is delivered once beside a transaction that is held open. It
// takes two minutes where CI=true, and with OUTBOX_TEST_LONG also at a higher rate.
func TestSoak(t *testing.T) {
	t.Parallel()
	length, rate := 18*time.Second, 150
	if os.Getenv("CI") == "true" {
		length, rate = 2*time.Minute, 100
	}
	if os.Getenv("OUTBOX_TEST_LONG") != "" {
		length, rate = 2*time.Minute, 400
	}
	for _, target := range testdb.Main() {
		if target.Kind == testdb.SQLite { // its nodes would wait for each other
			continue
		}
		t.Run(string(target.Kind), func(t *testing.T) {
			t.Parallel()
			testdb.Open(t, target) // skips the test without a server
			result, err := soak.Run(t.Context(), soak.Options{Database: target.Kind, Time: length, Held: length / 3, Rate: rate}, nil)
			require.NoError(t, err)
			t.Log("\n" + result.String())
			require.Empty(t, result.Problems)
			require.NotZero(t, result.Written)
			require.Equal(t, result.Written, result.Delivered)
			var held, claims int
			for _, s := range result.Samples {
				claims += s.Claims.Count
				if s.Held {
					held++
				}
			}
			require.NotZero(t, held, "samples beside the held transaction")
			require.NotZero(t, claims)
		})
	}
}
