package main_test

import (
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSample(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "run", ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	sum := 0
	for _, shard := range regexp.MustCompile(`shard \d has (\d+) orders`).FindAllSubmatch(out, -1) {
		orders, err := strconv.Atoi(string(shard[1]))
		require.NoError(t, err)
		require.Positive(t, orders, "%s", out)
		sum += orders
	}
	require.Equal(t, 200, sum, "%s", out)
	require.Regexp(t, `delivered 200 events of 200, at most [1-4] at once`, string(out))
}
