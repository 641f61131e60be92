package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"
)

// The limits of a request.
const (
	maxBody     = 64 << 10
	maxText     = 100 // characters of a name
	maxQuantity = 10_000
	maxBulk     = 1_000
	maxListed   = 10_000
)

// orderRequest is the body of POST /orders.
type orderRequest struct {
	Customer string `json:"customer"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

// bulkRequest is the body of POST /orders/bulk.
type bulkRequest struct {
	orderRequest
	N int `json:"n"`
}

// badRequest is a 400 with the field that is wrong.
type badRequest struct{ field, problem string }

func (e *badRequest) Error() string { return strings.TrimSpace(e.field + " " + e.problem) }

func (r orderRequest) validate() error {
	for _, text := range []struct{ field, value string }{{"customer", r.Customer}, {"item", r.Item}} {
		switch n := utf8.RuneCountInString(text.value); {
		case strings.TrimSpace(text.value) == "":
			return &badRequest{text.field, "is missing or blank"}
		case n > maxText:
			return &badRequest{text.field, fmt.Sprintf("has %d characters; the limit is %d", n, maxText)}
		case strings.ContainsRune(text.value, 0):
			return &badRequest{text.field, "contains a NUL"}
		}
	}
	return within("quantity", r.Quantity, maxQuantity)
}

func (r bulkRequest) validate() error {
	if err := within("n", r.N, maxBulk); err != nil {
		return err
	}
	return r.orderRequest.validate()
}

func within(field string, value, limit int) error {
	if value < 1 || value > limit {
		return &badRequest{field, fmt.Sprintf("is %d; it must be given, from 1 to %d", value, limit)}
	}
	return nil
}

// bodyFirst reads the body before anything else is done.
func bodyFirst(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		body, err := io.ReadAll(http.MaxBytesReader(c.Response(), c.Request().Body, maxBody))
		var large *http.MaxBytesError
		switch {
		case errors.As(err, &large):
			return &badRequest{"the body", fmt.Sprintf("is longer than %d bytes", large.Limit)}
		case err != nil:
			return &badRequest{"the body", "did not arrive: " + err.Error()}
		}
		c.Request().Body = io.NopCloser(bytes.NewReader(body))
		return next(c)
	}
}

// decode reads a JSON body, and that alone, into v.
func decode(c echo.Context, v interface{ validate() error }) error {
	body := json.NewDecoder(c.Request().Body)
	body.DisallowUnknownFields()
	err := body.Decode(v)
	if err == nil {
		if _, err = body.Token(); errors.Is(err, io.EOF) {
			return v.validate()
		}
		if err == nil {
			err = errors.New("something follows the JSON object")
		}
	}
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field != "":
		return &badRequest{wrong.Field, fmt.Sprintf("is a JSON %s; it must be of the type %s", wrong.Value, wrong.Type)}
	case errors.Is(err, io.EOF):
		return &badRequest{"the body", "is empty; it must be a JSON object"}
	default:
		return &badRequest{"the body", "is not the JSON object expected: " + err.Error()}
	}
}

// simulations are the failures that POST /orders?simulate= can show.
var simulations = []string{"handler-error", "panic", simulateCommitFailure, simulateListenerError, simulateListenerDead}

func simulationOf(c echo.Context) (string, error) {
	simulate := c.QueryParam("simulate")
	if simulate != "" && !slices.Contains(simulations, simulate) {
		return "", &badRequest{"simulate", fmt.Sprintf("is %q; known are %s", simulate, strings.Join(simulations, ", "))}
	}
	return simulate, nil
}

func limitOf(c echo.Context) (int, error) {
	text := c.QueryParam("limit")
	if text == "" {
		return 100, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil {
		return 0, &badRequest{"limit", fmt.Sprintf("is %q, which is no number", text)}
	}
	return limit, within("limit", limit, maxListed)
}
