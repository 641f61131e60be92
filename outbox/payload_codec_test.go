package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// sloppy is a codec that breaks its promise of valid JSON.
type sloppy struct{ outbox.Codec }

func (sloppy) Marshal(any) ([]byte, error) { return []byte(`{"id":`), nil }

// Not parallel: it replaces the default for all.
func TestWhatAReplacedDefaultCodecMakesIsChecked(t *testing.T) { //nolint:paralleltest // see above
	std := outbox.DefaultCodec
	t.Cleanup(func() { outbox.DefaultCodec = std })
	outbox.DefaultCodec = sloppy{std}
	env := valid()
	env.Payload = outbox.JSON("x")
	require.ErrorContains(t, env.Validate(), "not valid JSON")
	outbox.DefaultCodec = std
	env.Payload = outbox.Encode(sloppy{std}, "x")
	require.ErrorContains(t, env.Validate(), "not valid JSON")
}
