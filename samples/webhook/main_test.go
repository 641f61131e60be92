package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheRequestComesTwiceAndForgedRequestsAreRefused(t *testing.T) {
	var out strings.Builder
	orders, err := run(t.Context(), t.TempDir(), &out)
	require.NoError(t, err, out.String())
	require.Equal(t, 1, orders, out.String())
	require.Equal(t, 1, strings.Count(out.String(), "notes the order"), out.String())
	require.Equal(t, 1, strings.Count(out.String(), "only answers"), out.String())
	require.Equal(t, 3, strings.Count(out.String(), "refuses the request"), out.String())
}
