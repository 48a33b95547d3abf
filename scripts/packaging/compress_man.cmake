# CPack runs this before it makes the packages: Debian policy requires compressed man pages. With -n, the same page gives
# the same bytes.
find_program(gzip gzip)
file(GLOB pages "${CPACK_TEMPORARY_DIRECTORY}/*${CPACK_PACKAGING_INSTALL_PREFIX}/share/man/man1/*.1")
if(gzip AND pages)
  execute_process(COMMAND ${gzip} -9nf ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
