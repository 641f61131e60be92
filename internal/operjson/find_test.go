package operjson_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestStatesAreChosen(t *testing.T) {
	t.Parallel()
	now := time.Now()
	waiting := []outbox.Status{outbox.StatusNew, outbox.StatusRetry}
	for _, test := range []struct {
		names []string
		want  outbox.EventFilter
	}{
		{nil, outbox.EventFilter{}},
		{[]string{"DEAD"}, outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusDead}}},
		{[]string{"NEW", "RETRY", "NEW"}, outbox.EventFilter{Statuses: waiting}},
		{[]string{"WAITING", "RETRY"}, outbox.EventFilter{Statuses: waiting}},
		{[]string{"DUE"}, outbox.EventFilter{Statuses: waiting, DueBefore: now}},
		{[]string{"DELAYED"}, outbox.EventFilter{Statuses: waiting, DueAfter: now}},
		{[]string{"LEASED"}, outbox.EventFilter{Statuses: waiting, Leased: true}},
	} {
		var got outbox.EventFilter
		require.True(t, operjson.Choose(&got, test.names, now), test.names)
		require.Equal(t, test.want, got, test.names)
	}
	for _, names := range [][]string{{"OTHER"}, {"new"}, {""}, {"DUE", "RETRY"}, {"DEAD", "LEASED"}, {"DUE", "DELAYED"}} {
		require.False(t, operjson.Choose(&outbox.EventFilter{}, names, now), names)
	}
}
