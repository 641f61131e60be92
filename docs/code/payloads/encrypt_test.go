package payloads_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// encrypted is a codec that stores payloads encrypted with AES-GCM.
type encrypted struct {
	topic   string                 // authenticated: a payload cannot be moved to another topic
	current string                 // the id of the key that encrypts
	keys    map[string]cipher.AEAD // by id; old keys still decrypt
}

// ciphertext is the JSON in the table.
type ciphertext struct {
	Key  string `json:"key"`
	Data []byte `json:"data"` // the nonce and the encrypted JSON; in base64
}

// unknownKeyError has a type of its own, because last_error shows only the type of a
// codec's error.
type unknownKeyError string

func (e unknownKeyError) Error() string { return "this process has no key " + string(e) }

func (c encrypted) Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	data := c.keys[c.current].Seal(nil, nil, text, []byte(c.topic))
	return json.Marshal(ciphertext{Key: c.current, Data: data})
}

func (c encrypted) Unmarshal(data []byte, v any) error {
	var stored ciphertext
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	key, known := c.keys[stored.Key]
	if !known {
		return unknownKeyError(stored.Key)
	}
	text, err := key.Open(nil, nil, stored.Data, []byte(c.topic))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// newKey makes a key of 16, 24 or 32 secret bytes. It adds a random nonce to each payload.
func newKey(secret []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

type patient struct {
	Name      string `json:"name"`
	Diagnosis string `json:"diagnosis"`
}

func admitted(keys map[string]cipher.AEAD, current string) outbox.Topic[patient] {
	return outbox.NewTopic[patient]("Patient", "PatientAdmitted").
		WithCodec(encrypted{topic: "Patient/PatientAdmitted", current: current, keys: keys})
}

func Example_encryption() {
	first, err := newKey([]byte("sixteen or more!"))
	check(err)
	second, err := newKey([]byte("another 16 bytes"))
	check(err)

	before := admitted(map[string]cipher.AEAD{"2026-10": first}, "2026-10")
	after := admitted(map[string]cipher.AEAD{"2026-10": first, "2026-11": second}, "2026-11")
	store := deliver(
		after.Listen(func(_ context.Context, p patient, _ outbox.Envelope) error {
			fmt.Println("delivered:", p.Name)
			return nil
		}),
		before.Envelope("p-1", patient{"Ann", "flu"}),
		after.Envelope("p-2", patient{"Bea", "flu"}),
	)
	for _, row := range store.Rows() {
		text := row.Envelope.Payload.String()
		fmt.Println(text[:14], strings.Contains(text, "flu"), row.Envelope.AggregateID)
	}
	// Unordered output:
	// delivered: Ann
	// delivered: Bea
	// {"key":"2026-1 false p-1
	// {"key":"2026-1 false p-2
}

func Example_missingKey() {
	key, err := newKey([]byte("sixteen or more!"))
	check(err)
	with := admitted(map[string]cipher.AEAD{"2026-11": key}, "2026-11")
	without := admitted(nil, "")
	store := deliver(
		without.Listen(func(context.Context, patient, outbox.Envelope) error { return nil }),
		with.Envelope("p-1", patient{"Ann", "flu"}),
	)
	row := store.Rows()[0]
	fmt.Println(row.Status, strings.Contains(row.LastError, "unknownKeyError"))
	// Output:
	// DEAD true
}
