package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"
)

// Secret signs requests. A secret is "whsec_" with 24 to 64 bytes in base64, for HMAC-SHA256, which the
// receiver has too; or "whsk_" with a private key of Ed25519 in base64, of 32 bytes (the seed) or 64, whose
// public key the receiver has. Printed and logged, a secret shows the prefix alone.
type Secret string

// The prefixes of secrets, and how many bytes a shared secret has.
const (
	sharedPrefix  = "whsec_"
	privatePrefix = "whsk_"
	minSecret     = 24
	maxSecret     = 64
)

// String returns the prefix.
func (s Secret) String() string {
	prefix, _, _ := strings.Cut(string(s), "_")
	if prefix += "_"; prefix == sharedPrefix || prefix == privatePrefix {
		return prefix + "…"
	}
	return "…"
}

// GoString is [Secret.String].
func (s Secret) GoString() string { return s.String() }

// MarshalText refuses, so that no secret is written by accident.
func (s Secret) MarshalText() ([]byte, error) {
	return nil, errors.New("webhook: a Secret is not written; convert it to a string to do so")
}

// sign returns the signature of a message, with the version of the signature.
func (s Secret) sign(message []byte) (string, error) {
	private := strings.HasPrefix(string(s), privatePrefix)
	text := strings.TrimPrefix(strings.TrimPrefix(string(s), sharedPrefix), privatePrefix)
	if len(text) == len(s) {
		return "", fmt.Errorf("begins with neither %s nor %s", sharedPrefix, privatePrefix)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", errors.New("is not base64 behind the prefix")
	}
	if !private {
		if len(key) < minSecret || len(key) > maxSecret {
			return "", fmt.Errorf("has %d bytes; it must have %d to %d", len(key), minSecret, maxSecret)
		}
		mac := hmac.New(sha256.New, key)
		mac.Write(message)
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
	}
	switch len(key) {
	case ed25519.SeedSize:
		key = ed25519.NewKeyFromSeed(key)
	case ed25519.PrivateKeySize:
	default:
		return "", fmt.Errorf("has %d bytes; a private key has %d or %d", len(key), ed25519.SeedSize, ed25519.PrivateKeySize)
	}
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(key, message)), nil
}

// sign returns the signatures of a request by all secrets, with spaces between. Source: Standard Webhooks,
// "Signature scheme": id, timestamp in seconds, and body, with dots between.
func sign(secrets []Secret, id string, at time.Time, body []byte) (string, error) {
	message := append([]byte(id+"."+strconv.FormatInt(at.Unix(), 10)+"."), body...)
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		signature, err := s.sign(message)
		if err != nil {
			return "", fmt.Errorf("its secret %d %w", i+1, err)
		}
		signatures[i] = signature
	}
	return strings.Join(signatures, " "), nil
}
