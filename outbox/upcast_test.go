package outbox_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

type (
	paidV1 struct{ Euros int }
	paidV2 struct{ Cents int }
	paidV3 struct {
		Cents    int
		Currency string
	}
)

var errNoEuros = errors.New("no euros")

func paid1to2(old paidV1) (paidV2, error) {
	if old.Euros < 0 {
		return paidV2{}, errNoEuros
	}
	return paidV2{100 * old.Euros}, nil
}

func paid2to3(old paidV2) (paidV3, error) { return paidV3{old.Cents, "EUR"}, nil }

func paid1to3(old paidV1) (paidV3, error) { return paidV3{100 * old.Euros, "EUR"}, nil }

var (
	topicV1    = outbox.NewTopic[paidV1]("Bill", "Paid")
	topicV2    = outbox.NewTopic[paidV2]("Bill", "Paid").WithVersion(2, outbox.From(1, paid1to2))
	topicV3    = outbox.NewTopic[paidV3]("Bill", "Paid").WithVersion(3, outbox.From(2, paid2to3, outbox.From(1, paid1to2)))
	topicV3Far = outbox.NewTopic[paidV3]("Bill", "Paid").WithVersion(3, outbox.From(1, paid1to3), outbox.From(2, paid2to3))
)

// stored is an event as it comes back from a row.
func stored(t *testing.T, env outbox.Envelope) outbox.Envelope {
	t.Helper()
	require.NoError(t, env.Validate())
	read := env
	require.NoError(t, outbox.ReadStored(&read, outbox.StoredHeaders(&env), env.Payload.String()))
	require.Equal(t, env.Headers, read.Headers)
	return read
}

func TestAnEventOfAnOlderBuildDecodes(t *testing.T) {
	t.Parallel()
	for name, topic := range map[string]outbox.Topic[paidV3]{"a chain": topicV3, "a function for each version": topicV3Far} {
		for version, env := range map[int]outbox.Envelope{
			1: topicV1.Envelope("b", paidV1{2}), 2: topicV2.Envelope("b", paidV2{200}), 3: topic.Envelope("b", paidV3{200, "EUR"}),
		} {
			env.Headers = map[string]string{"k": "v"}
			require.Equal(t, version, env.Payload.Version(), name)
			for _, env := range []outbox.Envelope{env, stored(t, env)} {
				require.Equal(t, version, env.Payload.Version(), name)
				payload, err := topic.Decode(env)
				require.NoError(t, err, name)
				require.Equal(t, paidV3{200, "EUR"}, payload, name)
			}
		}
		require.Equal(t, []int{1, 2, 3}, topic.Versions(), name)
		require.Equal(t, 3, topic.Version(), name)
	}
	require.Equal(t, []int{1}, topicV1.Versions())
	require.Equal(t, 1, topicV1.Version())
}

// The codec of the topic reads the old payloads, too.
func TestAnOldPayloadIsDecodedWithTheCodecOfTheTopic(t *testing.T) {
	t.Parallel()
	refusing := topicV2.WithCodec(strict{})
	_, err := refusing.Decode(outbox.Envelope{Payload: outbox.RawJSON(`{"Euros":1,"Other":2}`)})
	require.Error(t, err)
	payload, err := refusing.Decode(outbox.Envelope{Payload: outbox.RawJSON(`{"Euros":1}`)})
	require.NoError(t, err)
	require.Equal(t, paidV2{100}, payload)
}

func TestAVersionOneHasNoHeader(t *testing.T) {
	t.Parallel()
	for _, env := range []outbox.Envelope{
		topicV1.Envelope("b", paidV1{}), topicV1.WithVersion(1).Envelope("b", paidV1{}),
		{Payload: outbox.RawJSON(`1`).WithVersion(2).WithVersion(1)},
	} {
		require.Empty(t, outbox.StoredHeaders(&env))
		require.Equal(t, 1, env.Payload.Version())
	}
	env := topicV3.Envelope("b", paidV3{})
	require.Equal(t, map[string]string{outbox.HeaderVersion: "3"}, outbox.StoredHeaders(&env))
	env = outbox.Envelope{Payload: outbox.Bytes("a/b", "x").WithVersion(2)}
	require.Equal(t, map[string]string{outbox.HeaderVersion: "2", outbox.HeaderContentType: "a/b"}, outbox.StoredHeaders(&env))
}

func TestAVersionThatIsNoNumberIsNotRead(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "0", "-1", "2.0", "two", "99999999999999999999"} {
		var env outbox.Envelope
		err := outbox.ReadStored(&env, map[string]string{outbox.HeaderVersion: version}, `1`)
		require.ErrorContains(t, err, "the header outbox-version is no number from 1", version)
		require.Equal(t, map[string]string{outbox.HeaderVersion: version}, env.Headers, "the row stays as it is")
	}
}

func TestErrorsOfVersionsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says   string
		decode func() error
	}{
		{`event e (Bill/Paid) has version 3 (28 bytes), and this build reads version 1; a newer build delivers the event`, func() error {
			env := topicV3.Envelope("b", paidV3{1, "EUR"})
			env.EventID = "e"
			_, err := topicV1.Decode(env)
			require.ErrorIs(t, err, outbox.ErrNewerVersion)
			return err
		}},
		{`event e (Bill/Paid) has version 1 (11 bytes), and the topic reads [2]; add outbox.From(1, …) to the topic and replay the event`, func() error {
			env := topicV1.Envelope("b", paidV1{1})
			env.EventID = "e"
			_, err := outbox.NewTopic[paidV2]("Bill", "Paid").WithVersion(2).Decode(env)
			require.NotErrorIs(t, err, outbox.ErrNewerVersion)
			return err
		}},
		{`reading event e (Bill/Paid) of version 1 (12 bytes): no euros`, func() error {
			env := topicV1.Envelope("b", paidV1{-1})
			env.EventID = "e"
			_, err := topicV3.Decode(env)
			require.ErrorIs(t, err, errNoEuros)
			return err
		}},
		{`the function of outbox.From(1) is nil`, func() error {
			_, err := topicV1.WithVersion(2, outbox.From[paidV1, paidV1](1, nil)).Decode(topicV1.Envelope("b", paidV1{}))
			return err
		}},
		{`the version is 0; versions begin with 1`, func() error {
			return topicV1.WithVersion(0).Envelope("b", paidV1{}).Validate()
		}},
	} {
		require.ErrorContains(t, tt.decode(), tt.says)
	}
}

// A newer build runs beside this one, or ran before it: the event waits, and is no dead letter.
func TestAnEventOfANewerBuildWaitsForIt(t *testing.T) {
	t.Parallel()
	for name, old := range map[string]func(calls *int) outbox.Binding{
		"a listener": func(calls *int) outbox.Binding {
			return topicV1.Listen(func(context.Context, paidV1, outbox.Envelope) error { *calls++; return nil })
		},
		"a batch listener": func(calls *int) outbox.Binding {
			return topicV1.ListenBatch(outbox.BatchOptions{Size: 2, Wait: time.Millisecond}, func(context.Context, []outbox.Event[paidV1]) ([]error, error) {
				*calls++
				return nil, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				e := startNamed(t, outbox.Config{}, old(&calls))
				env := topicV3.Envelope("b", paidV3{1, "EUR"})
				env.EventID = "newer"
				e.write(env)
				time.Sleep(time.Hour)
				row, _ := e.store.Row("newer")
				require.Zero(t, calls)
				require.False(t, row.Status.Terminal(), "%s: %s", row.Status, row.LastError)
				require.Zero(t, row.Attempts)
				require.Contains(t, row.LastError, "a newer build delivers the event")
				require.LessOrEqual(t, time.Until(row.AvailableAt), 5*time.Minute)
				require.Equal(t, 3, row.Envelope.Payload.Version())
			})
		})
	}
}

// An event of a version that nothing reads is dead, and replaying it later delivers it.
func TestAnEventOfAnOldVersionThatIsNotReadIsDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := startNamed(t, outbox.Config{}, topicV2.WithVersion(2).Listen(func(context.Context, paidV2, outbox.Envelope) error { return nil }))
		env := topicV1.Envelope("b", paidV1{1})
		env.EventID = "old"
		e.write(env)
		require.Contains(t, e.await("old", outbox.StatusDead).LastError, "add outbox.From(1, …)")
	})
}

// A topic without versions pays a comparison of two numbers.
func BenchmarkTopicDecode(b *testing.B) {
	env := topicV1.Envelope("b", paidV1{2})
	env.Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for name, decode := range map[string]func() error{
		"outbox.Decode":   func() error { _, err := outbox.Decode[paidV1](env); return err },
		"without version": func() error { _, err := topicV1.Decode(env); return err },
		"from 1 to " + strconv.Itoa(topicV2.Version()): func() error { _, err := topicV2.Decode(env); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
