package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheOrderIsDeliveredTwiceAndHandledOnce(t *testing.T) {
	var out strings.Builder
	stock, err := run(t.Context(), t.TempDir(), &out)
	require.NoError(t, err, out.String())
	require.Equal(t, 9, stock, out.String())
	require.Equal(t, 2, strings.Count(out.String(), "delivers"))
	require.Equal(t, 1, strings.Count(out.String(), "takes the item"))
}
