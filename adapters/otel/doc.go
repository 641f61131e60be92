// Package outboxotel traces and measures an outbox with OpenTelemetry. It needs
// the API only, so it works with any SDK.
package outboxotel
