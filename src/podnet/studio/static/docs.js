// The API, shown by Swagger UI, which the server has in a Python package.

window.SwaggerUIBundle({ url: "/api/openapi.json", dom_id: "#swagger-ui", deepLinking: true });
