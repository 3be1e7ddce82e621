"""One file for each table or figure of the paper; two that show the same runs may share one."""
