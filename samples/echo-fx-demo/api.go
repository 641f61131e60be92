package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
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

// listRequest is the query of the listings.
type listRequest struct {
	Limit   int    `query:"limit"`
	OrderID string `query:"order_id"`
}

func (r *orderRequest) validate() error {
	for field, value := range map[string]string{"customer": r.Customer, "item": r.Item} {
		switch {
		case strings.TrimSpace(value) == "":
			return badRequest("%s is missing or blank", field)
		case utf8.RuneCountInString(value) > maxText:
			return badRequest("%s is longer than %d characters", field, maxText)
		case strings.ContainsRune(value, 0):
			return badRequest("%s contains a NUL", field)
		}
	}
	return within("quantity", r.Quantity, maxQuantity)
}

func (r *bulkRequest) validate() error {
	return errors.Join(within("n", r.N, maxBulk), r.orderRequest.validate())
}

func (r *listRequest) validate() error { return within("limit", r.Limit, maxListed) }

func within(field string, value, limit int) error {
	if value < 1 || value > limit {
		return badRequest("%s is %d; it must be from 1 to %d", field, value, limit)
	}
	return nil
}

func badRequest(format string, args ...any) error {
	return echo.NewHTTPError(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

// bind has Echo read the request into v and validates it.
func bind(c echo.Context, v interface{ validate() error }) error {
	if err := c.Bind(v); err != nil {
		return err
	}
	return v.validate()
}

// placed is the answer to an order.
type placed struct {
	OrderID string `json:"order_id"`
	EventID string `json:"event_id"`
}

func (s *server) place(c echo.Context) error {
	var request orderRequest
	if err := bind(c, &request); err != nil {
		return err
	}
	answer, err := s.save(c, request, 1)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, answer[0])
}

func (s *server) placeBulk(c echo.Context) error {
	var request bulkRequest
	if err := bind(c, &request); err != nil {
		return err
	}
	answer, err := s.save(c, request.orderRequest, request.N)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, map[string]any{"orders": answer})
}

// save places the same order n times.
func (s *server) save(c echo.Context, request orderRequest, n int) ([]placed, error) {
	orders := make([]Order, n)
	for i := range orders {
		orders[i] = newOrder(request)
	}
	events, err := s.shop.place(c.Request().Context(), orders)
	if err != nil {
		return nil, err
	}
	answer := make([]placed, n)
	for i := range orders {
		answer[i] = placed{OrderID: orders[i].ID, EventID: events[i]}
	}
	return answer, nil
}

func (s *server) listOrders(c echo.Context) error {
	request := listRequest{Limit: 100}
	if err := bind(c, &request); err != nil {
		return err
	}
	orders, err := s.shop.newest(c.Request().Context(), request.Limit)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"orders": orders})
}

func (s *server) listDeliveries(c echo.Context) error {
	request := listRequest{Limit: 100}
	if err := bind(c, &request); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"deliveries": s.deliveries.list(request.OrderID, request.Limit)})
}

// answerError answers every failure in JSON. The text of a database error goes only to the log.
func answerError(err error, c echo.Context) {
	if c.Response().Committed { // the middleware has already answered
		return
	}
	status, text := http.StatusInternalServerError, "something went wrong; nothing was saved"
	var known *echo.HTTPError
	var commit *echomw.CommitError
	switch {
	case errors.As(err, &commit) && errors.Is(err, outbox.ErrOutcomeUnknown):
		text = "the connection to the database broke during the commit; the order may have been placed or not"
	case errors.As(err, &commit):
		text = "the transaction did not commit; nothing was saved"
	case errors.As(err, &known):
		status, text = known.Code, fmt.Sprint(known.Message)
		if cause := known.Unwrap(); cause != nil && status < http.StatusInternalServerError {
			text = cause.Error() // why the body is wrong
		}
	}
	if status >= http.StatusInternalServerError {
		slog.Warn("request failed", "method", c.Request().Method, "path", c.Path(), "status", status, "error", err)
	}
	if err := c.JSON(status, map[string]any{"error": text}); err != nil {
		slog.Info("answering failed", "error", err)
	}
}
